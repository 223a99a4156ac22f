//! The properties on the seeds of the fuzzer: whole, cut and damaged.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use swansong_properties::PROPERTIES;

fn fuzz(folder: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz")).join(folder)
}

fn names(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(fuzz(folder)).expect("a folder");
    let stem = |path: PathBuf| path.file_stem().expect("a name").to_string_lossy().into_owned();
    entries.map(|entry| stem(entry.expect("an entry").path())).collect()
}

#[test]
fn every_property_has_a_target_and_seeds() {
    let property: BTreeSet<String> = PROPERTIES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(names("seeds"), property);
    assert_eq!(names("fuzz_targets"), property);
    let manifest = fs::read_to_string(fuzz("Cargo.toml")).expect("a manifest");
    for name in &property {
        let target =
            fs::read_to_string(fuzz("fuzz_targets").join(name).with_extension("rs")).expect("a target");
        assert!(target.contains(&format!("swansong_properties::{name}(input)")), "{name}");
        assert!(manifest.contains(&format!("name = \"{name}\"")), "{name} is no binary");
    }
}

/// Number of positions at which a seed is cut and damaged; all of them would take minutes.
const PLACES: usize = 200;

#[test]
fn properties_hold_for_the_seeds() {
    for (name, property) in PROPERTIES {
        let mut seeds = 0;
        for entry in fs::read_dir(fuzz("seeds").join(name)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let seed = fs::read(&path).expect("a seed");
            seeds += 1;
            property(&seed);
            for place in (0..seed.len()).step_by((seed.len() / PLACES).max(1)) {
                property(&seed[..place]);
                for damage in [b'"', b'\\', 0, 0xff, seed[place] ^ 1] {
                    let mut damaged = seed.clone();
                    damaged[place] = damage;
                    property(&damaged);
                }
            }
        }
        assert!(seeds > 0, "{name} has no seed");
    }
}
