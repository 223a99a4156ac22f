//! No cycles between the modules of one crate.

use std::collections::{BTreeMap, BTreeSet};

use crate::crates::{Package, packages};
use crate::{files, read, source};

/// What a crate's root file is called among its modules.
const ROOT: &str = "lib.rs";

/// The modules of a crate below `src`: for each, the others that it refers to, with a file that does.
type Graph = BTreeMap<String, BTreeMap<String, String>>;

fn graph(folder: &str, files: &[String]) -> Graph {
    let below = if folder.is_empty() { "src/".to_owned() } else { format!("{folder}/src/") };
    let mut codes = BTreeMap::new();
    let mut tests = BTreeSet::new();
    for file in files.iter().filter(|file| file.starts_with(&below) && file.ends_with(".rs")) {
        let path: Vec<String> = file[below.len()..file.len() - 3].split('/').map(str::to_owned).collect();
        let (code, modules) = source::without_tests(&source::code(&read(file)));
        let path = match path.last().map(String::as_str) {
            Some("lib" | "main" | "mod") => path[..path.len() - 1].to_vec(),
            _ => path,
        };
        tests.extend(modules.into_iter().map(|module| [&path[..], &[module]].concat()));
        codes.insert(file.clone(), (path, code));
    }
    codes.retain(|_, (path, _)| !tests.iter().any(|test| path.starts_with(test)));
    let top: BTreeSet<String> = codes.values().filter_map(|(path, _)| path.first().cloned()).collect();
    let reexports = reexports(&codes, &top);
    let mut graph = Graph::new();
    for (file, (path, code)) in &codes {
        let from = path.first().map_or(ROOT, String::as_str);
        for reference in source::paths(code) {
            let Some(item) = absolute(path, &reference) else { continue };
            let to =
                if top.contains(&item) { &item } else { reexports.get(&item).map_or(ROOT, String::as_str) };
            if to != from && from != ROOT {
                graph
                    .entry(from.to_owned())
                    .or_default()
                    .entry(to.to_owned())
                    .or_insert_with(|| file.clone());
            }
        }
    }
    graph
}

/// Items that the root file takes from its modules, with the module of each.
fn reexports(
    codes: &BTreeMap<String, (Vec<String>, String)>,
    top: &BTreeSet<String>,
) -> BTreeMap<String, String> {
    let mut reexports = BTreeMap::new();
    for (_, code) in codes.values().filter(|(path, _)| path.is_empty()) {
        for statement in code.split("use ").skip(1) {
            let statement = statement.trim_start_matches("crate::").trim_start_matches("self::");
            for path in source::paths(&format!("crate::{}", statement.split(';').next().unwrap_or_default()))
            {
                if let [_, module, .., item] = &path[..]
                    && top.contains(module)
                {
                    reexports.insert(item.clone(), module.clone());
                }
            }
        }
    }
    reexports
}

/// The first name below the crate's root that a path in module `from` leads to; nothing inside `from`'s own tree.
fn absolute(from: &[String], reference: &[String]) -> Option<String> {
    let ups = reference.iter().take_while(|name| *name == "super").count();
    let names = if reference[0] == "crate" { &reference[1..] } else { &reference[ups..] };
    if reference[0] == "super" && ups < from.len() {
        return None;
    }
    names.first().filter(|name| *name != "self").cloned()
}

/// A way from `from` back to itself.
fn cycle(graph: &Graph, from: &str) -> Option<Vec<String>> {
    let mut ways = vec![vec![from.to_owned()]];
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop() {
        for to in graph.get(&way[way.len() - 1]).into_iter().flat_map(BTreeMap::keys) {
            let longer = [&way[..], std::slice::from_ref(to)].concat();
            if to == from {
                return Some(longer);
            }
            if seen.insert(to.clone()) {
                ways.insert(0, longer);
            }
        }
    }
    None
}

#[test]
fn modules_of_one_crate_form_no_cycle() {
    let files = files();
    let mut cycles = Vec::new();
    for Package { name, folder, .. } in packages() {
        let graph = graph(&folder, &files);
        let mut reported = BTreeSet::new();
        for module in graph.keys() {
            let Some(cycle) =
                cycle(&graph, module).filter(|cycle| !cycle.iter().any(|module| reported.contains(module)))
            else {
                continue;
            };
            let steps = cycle
                .windows(2)
                .map(|step| format!("  {} uses {} in {}", step[0], step[1], graph[&step[0]][&step[1]]));
            cycles.push(format!("{name}: {}\n{}", cycle.join(" -> "), steps.collect::<Vec<_>>().join("\n")));
            reported.extend(cycle);
        }
    }
    assert!(cycles.is_empty(), "modules that use each other:\n{}", cycles.join("\n"));
}
