//! Checks that the webhook's resources are stable: memory over many reviews, with large ones in parallel, and over
//! connections that come, go and break off. Ends with 1 when a bound isn't kept.
//!
//! `make soak` runs it, in a few minutes. `SWANSONG_SOAK_REVIEWS` and `SWANSONG_SOAK_CONNECTIONS` change how long.

mod churn;
mod large;
mod process;
mod reviews;

use std::fmt::Write;
use std::process::ExitCode;

use anyhow::Context;

use self::process::{Tls, Webhook};

/// A line of the table: what was measured, what came, what is allowed, and whether that is kept.
pub(crate) struct Finding {
    what: String,
    measured: String,
    bound: String,
    kept: bool,
}

impl Finding {
    pub(crate) fn new(
        what: impl Into<String>,
        measured: impl Into<String>,
        bound: impl Into<String>,
        kept: bool,
    ) -> Self {
        Self { what: what.into(), measured: measured.into(), bound: bound.into(), kept }
    }
}

/// An unsigned number from the environment.
pub(crate) fn setting(name: &str, default: usize) -> anyhow::Result<usize> {
    match std::env::var(name) {
        Ok(text) => text.parse().with_context(|| format!("{name}={text} is no number")),
        Err(_) => Ok(default),
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    // `cargo test --benches` runs this too.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(ExitCode::SUCCESS);
    }
    let tls = Tls::new()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let mut findings = Vec::new();
    local.block_on(&runtime, async {
        findings.extend(reviews::run(&Webhook::start(&tls)?, &tls).await?);
        findings.extend(large::run(&Webhook::start(&tls)?, &tls).await?);
        findings.extend(churn::run(&Webhook::start(&tls)?, &tls).await?);
        anyhow::Ok(())
    })?;
    let mut table = String::from("| what | measured | bound | kept |\n|---|---|---|---|\n");
    for Finding { what, measured, bound, kept } in &findings {
        let kept = if *kept { "yes" } else { "NO" };
        writeln!(table, "| {what} | {measured} | {bound} | {kept} |")?;
    }
    print!("{table}");
    let kept = findings.iter().all(|finding| finding.kept);
    Ok(if kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
