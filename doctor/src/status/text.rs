//! The tables as text.

use std::fmt;

use super::{JobRow, NodeRow, Ready, Reason, Table};
use crate::checks::age;
use crate::fault_course::Happening;
use crate::report::escape;

/// Longer tables leave out the rows that are ready and have no fault.
const SHORT: usize = 20;
/// Spaces between columns.
const GAP: usize = 2;

/// The tables for people.
#[derive(Debug)]
pub struct Text<'a> {
    pub table: &'a Table,
    /// In milliseconds since 1970.
    pub now: u64,
    /// Whether no row is left out.
    pub is_verbose: bool,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Table { jobs, nodes, problems } = self.table;
        for problem in problems {
            writeln!(f, "? {}", escape(problem))?;
        }
        let is_calm =
            |row: &&JobRow| row.ready == Ready::Yes && row.last_fault.is_none() && row.outcome.is_none();
        let is_short = self.is_verbose || jobs.len() <= SHORT;
        let rows: Vec<Vec<String>> =
            jobs.iter().filter(|row| is_short || !is_calm(row)).map(|row| self.job(row)).collect();
        let left_out = jobs.len() - rows.len();
        columns(f, &["JOB", "PODS", "READY", "LAST FAULT", "OUTCOME", "WHY"], &rows)?;
        if jobs.is_empty() {
            writeln!(f, "no job asks for a dump")?;
        } else if left_out > 0 {
            writeln!(f, "{left_out} other jobs are ready")?;
        }
        writeln!(f)?;
        let is_calm = |row: &&NodeRow| row.ready == Ready::Yes && row.last_fault.is_none();
        let is_short = self.is_verbose || nodes.len() <= SHORT;
        let rows: Vec<Vec<String>> =
            nodes.iter().filter(|row| is_short || !is_calm(row)).map(|row| self.node(row)).collect();
        let left_out = nodes.len() - rows.len();
        columns(f, &["NODE", "PODS", "READY", "FAULTS", "LAST FAULT", "WHY"], &rows)?;
        if nodes.is_empty() {
            writeln!(f, "no node has an agent")?;
        } else if left_out > 0 {
            writeln!(f, "{left_out} other nodes are ready")?;
        }
        Ok(())
    }
}

impl Text<'_> {
    fn job(&self, row: &JobRow) -> Vec<String> {
        let running = row.running_pods.map_or_else(|| "?".to_owned(), |running| running.to_string());
        vec![
            format!("{}/{}", row.namespace, row.name),
            format!("{running}/{}", row.wanted_pods),
            ready(row.ready),
            self.happening(row.last_fault.as_ref()),
            self.happening(row.outcome.as_ref()),
            why(&row.why),
        ]
    }

    fn node(&self, row: &NodeRow) -> Vec<String> {
        vec![
            row.name.clone(),
            row.pods.to_string(),
            ready(row.ready),
            row.faults_relayed.clone().unwrap_or_else(|| "-".to_owned()),
            self.happening(row.last_fault.as_ref()),
            why(&row.why),
        ]
    }

    fn happening(&self, happening: Option<&Happening>) -> String {
        let Some(Happening { at, reason, node, .. }) = happening else { return "-".to_owned() };
        let node = node.as_ref().map(|node| format!(" on {node}")).unwrap_or_default();
        match at {
            Some(at) => format!("{reason}{node}, {} ago", age(self.now.saturating_sub(*at))),
            None => reason.clone(),
        }
    }
}

fn ready(ready: Ready) -> String {
    let text: &str = ready.into();
    text.to_owned()
}

/// The first reason, and how many others there are.
fn why(reasons: &[Reason]) -> String {
    let Some((first, others)) = reasons.split_first() else { return String::new() };
    let more = if others.is_empty() { String::new() } else { format!(" (and {} more)", others.len()) };
    escape(&format!("{}: {}{more}", first.check, first.seen))
}

/// Rows in columns that are as wide as their longest cell.
fn columns(f: &mut fmt::Formatter<'_>, head: &[&str], rows: &[Vec<String>]) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let lines = || std::iter::once(&head).chain(rows);
    let widths: Vec<usize> = (0..head.len())
        .map(|column| lines().map(|line| line[column].chars().count()).max().unwrap_or_default())
        .collect();
    for line in lines() {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<0$}", width + GAP));
        writeln!(f, "{}", cells.collect::<String>().trim_end())?;
    }
    Ok(())
}
