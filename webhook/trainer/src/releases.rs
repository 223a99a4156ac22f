//! Releases of MindCluster with known defects.

use std::cmp::Ordering;

use serde::Serialize;

const TABLE: &str = include_str!("releases.tsv");

/// The components of MindCluster that a job and its cluster run.
pub const COMPONENTS: &[&str] = &["clusterd", "mindio_ttp", "taskd"];

/// A defect that concerns the dying checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Defect {
    /// `clusterd`, `mindio_ttp`, `taskd`; `MindCluster` if the component isn't documented.
    pub components: Vec<&'static str>,
    /// The first release with it; `None` if all before the fix have it.
    pub since: Option<&'static str>,
    /// The release to move to; `None` if no release has the fix yet.
    pub fixed_in: Option<&'static str>,
    /// The commits of the fix.
    pub commits: Vec<&'static str>,
    pub description: &'static str,
}

impl Defect {
    /// A sentence with the defect and the release to move to.
    pub fn message(&self, component: &str, version: &str) -> String {
        let fix = self.fixed_in.map_or_else(
            || format!("no release has the fix yet ({})", self.commits.join(", ")),
            |release| format!("move to {release} or newer"),
        );
        format!("{component} {version}: {}; {fix}", self.description)
    }
}

/// All defects, in the order of the table.
pub fn defects() -> Vec<Defect> {
    TABLE.lines().filter_map(row).collect()
}

fn row(line: &'static str) -> Option<Defect> {
    let mut cells = line.split('\t');
    let components = cells.next().filter(|cell| !cell.starts_with('#'))?;
    let release = |cell: &'static str| (cell != "-").then_some(cell);
    let (since, fixed_in) = (release(cells.next()?), release(cells.next()?));
    let commits = cells.next()?.split(',').collect();
    Some(Defect {
        components: components.split(',').collect(),
        since,
        fixed_in,
        commits,
        description: cells.next()?,
    })
}

/// The defects of a component's release, with a component of [`COMPONENTS`]; `None` if the component or version isn't
/// understood, so that nothing is known.
///
/// ```
/// use swansong_trainer::releases::known_defects;
///
/// let defects = known_defects("mindio_ttp", "26.0.0").expect("a known component and a version");
/// assert!(defects.iter().any(|defect| defect.fixed_in == Some("v26.1.0")));
/// assert!(known_defects("mindio_ttp", "master").is_none());
/// ```
pub fn known_defects(component: &str, version: &str) -> Option<Vec<Defect>> {
    let component = component.to_ascii_lowercase().replace('-', "_");
    let version = Version::parse(version)?;
    if !COMPONENTS.contains(&component.as_str()) {
        return None;
    }
    let is_before = |release: &str| Version::parse(release).is_some_and(|release| version < release);
    let concerns = |defect: &Defect| {
        let names = [component.as_str(), "MindCluster"];
        defect.components.iter().any(|name| names.contains(name))
            && defect.fixed_in.is_none_or(is_before)
            && defect.since.is_none_or(|since| !is_before(since))
    };
    Some(defects().into_iter().filter(concerns).collect())
}

/// The component and version of an image reference such as `registry/clusterd:v26.0.0-arm64`; `None` if it isn't an image
/// of a component of [`COMPONENTS`] with a tag.
///
/// ```
/// use swansong_trainer::releases::{known_defects, version_of_image};
///
/// let (component, version) = version_of_image("local:5000/clusterd:v7.3.0").expect("a tag");
/// assert!(!known_defects(component, version).expect("a release").is_empty());
/// ```
pub fn version_of_image(image: &str) -> Option<(&'static str, &str)> {
    let name = image.split('@').next()?.rsplit('/').next()?;
    let (name, tag) = name.split_once(':')?;
    let component = COMPONENTS.iter().copied().find(|component| name.contains(component))?;
    let version = PLATFORMS.iter().find_map(|platform| tag.strip_suffix(platform)).unwrap_or(tag);
    Some((component, version.trim_end_matches(['-', '_', '.'])))
}

/// How tags of images name what they are for.
const PLATFORMS: &[&str] =
    &["linux-aarch64", "linux-x86_64", "aarch64", "x86_64", "arm64", "amd64", "openeuler", "ubuntu"];

/// A version of a release tag (`v26.0.0.beta.2`, `v7.2.RC1`) or of a wheel (`26.0.0b2`).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    numbers: Vec<u64>,
    stage: Stage,
    /// Of several of the same stage.
    count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Development,
    Alpha,
    Beta,
    Candidate,
    Release,
    Post,
}

impl Version {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        let text = text.strip_prefix('v').unwrap_or(&text).split('+').next()?;
        let stage_at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (numbers, stage) = text.split_at(stage_at);
        let parse = |part: &str| part.parse::<u64>().ok();
        let numbers: Option<Vec<u64>> =
            numbers.trim_end_matches(['.', '-', '_']).split('.').map(parse).collect();
        let name_end = stage.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(stage.len());
        let (name, count) = stage.split_at(name_end);
        let stage = match name {
            "" => Stage::Release,
            "dev" => Stage::Development,
            "a" | "alpha" => Stage::Alpha,
            "b" | "beta" => Stage::Beta,
            "c" | "rc" => Stage::Candidate,
            "post" => Stage::Post,
            _ => return None,
        };
        let count = count.trim_start_matches(['.', '-', '_']);
        let count = if count.is_empty() { 0 } else { parse(count)? };
        Some(Self { numbers: numbers?, stage, count })
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let length = self.numbers.len().max(other.numbers.len());
        let number = |version: &Self, at: usize| version.numbers.get(at).copied().unwrap_or(0);
        let numbers = (0..length).map(|at| number(self, at).cmp(&number(other, at)));
        let rest = (self.stage, self.count).cmp(&(other.stage, other.count));
        Some(numbers.fold(Ordering::Equal, Ordering::then).then(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered() {
        let ordered = [
            "v7.1.RC1",
            "v7.2.RC1",
            "7.2.rc2",
            "v7.2.0",
            "v7.3.0",
            "26.0.0.dev3",
            "26.0.0a1",
            "26.0.0.alpha.2",
            "26.0.0b1",
            "v26.0.0.beta.2",
            "v26.0.0-rc.1",
            "26.0.0rc2",
            "v26.0.0",
            "26.0.0.post1",
            "26.0.1",
            "v26.1.0.beta.2",
            "26.1",
        ];
        let versions: Vec<Version> = ordered.iter().map(|text| Version::parse(text).expect(text)).collect();
        for pair in versions.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
        }
        assert_eq!(Version::parse("26.0.0+cann8").map(|v| v.numbers), Some(vec![26, 0, 0]));
        for text in ["", "master", "v", "26.x", "1.0.0-ubuntu1", "latest", "26..0", "26.0.0.beta.x"] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn images_have_versions() {
        for (image, expected) in [
            ("clusterd:v26.0.0", Some(("clusterd", "v26.0.0"))),
            ("harbor:8443/mindx/clusterd:v7.3.0-arm64@sha256:00", Some(("clusterd", "v7.3.0"))),
            ("ascend-clusterd:26.0.0_linux-x86_64", Some(("clusterd", "26.0.0"))),
            ("clusterd", None),
            ("clusterd@sha256:00", None),
            ("ascend-operator:v26.0.0", None),
        ] {
            assert_eq!(version_of_image(image), expected, "{image}");
        }
    }

    #[test]
    fn every_row_is_read() {
        let rows = TABLE.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(defects().len(), rows);
        for defect in defects() {
            for release in defect.since.iter().chain(&defect.fixed_in) {
                assert!(Version::parse(release).is_some(), "{release}");
            }
            assert!(defect.components.iter().all(|name| *name == "MindCluster" || COMPONENTS.contains(name)));
        }
    }

    #[test]
    fn a_release_has_the_defects_that_are_fixed_later() {
        let of = |component: &str, version: &str| {
            known_defects(component, version)
                .map(|defects| defects.iter().flat_map(|d| d.commits.clone()).collect::<Vec<_>>())
        };
        assert_eq!(of("mindio-ttp", "26.1.0"), Some(vec!["b59348d9"]));
        assert_eq!(of("clusterd", "v26.0.0.beta.2").map(|all| all.contains(&"41819efc")), Some(false));
        assert_eq!(of("clusterd", "v26.0.0.beta.1").map(|all| all.contains(&"41819efc")), Some(true));
        assert_eq!(of("clusterd", "v26.0.0.beta.2").map(|all| all.contains(&"ada2f144")), Some(true));
        assert_eq!(of("taskd", "7.1.RC1").map(|all| all.contains(&"09d59306")), Some(false));
        assert_eq!(of("taskd", "7.3.0").map(|all| all.contains(&"09d59306")), Some(true));
        assert_eq!(of("taskd", "unknown"), None);
        assert_eq!(of("torch", "2.7.0"), None);
    }
}
