//! The documentation against the code: links that resolve, configuration that parses, an example that works,
//! commands that print what is shown.
//!
//! `INSTA_UPDATE=always cargo test -p swansong --test integration-docs` renews what commands print; read the difference before you commit it.

mod alerts;
mod doctor;
mod translations;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use swansong_api::documented::Documented as _;

use serde_json::Value;
use strum::VariantArray as _;
use swansong_clusterd::Class;
use swansong_inject::inject;
use swansong_inject::policy::Policy;
use swansong_inject::workload::WorkloadKind;
use swansong_webhook::config::Config;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for folder in ["", "docs", "docs/decisions", "docs/zh"] {
        for entry in fs::read_dir(root().join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// The text without fenced blocks, in which nothing is a link or a heading.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    prose
}

/// The fenced blocks of a language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut open: Option<Vec<&str>> = None;
    for line in text.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(found)) if found == language => open = Some(Vec::new()),
            (Some(_), Some(_)) => blocks.extend(open.take().map(|lines| lines.join("\n"))),
            (Some(lines), None) => lines.push(line),
            (None, _) => {}
        }
    }
    blocks
}

/// The anchors that a page's headings make.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let title = line.trim_start_matches('#').trim().to_lowercase();
            let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[test]
fn links_resolve() {
    let mut seen = 0;
    for page in pages() {
        let text = prose(&read(&page));
        for rest in text.split("](").skip(1) {
            let target = rest.split(')').next().expect("a target");
            if target.contains("://") {
                continue;
            }
            seen += 1;
            let (file, anchor) =
                target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
            let path =
                if file.is_empty() { page.clone() } else { page.parent().expect("a folder").join(file) };
            assert!(path.exists(), "{}: nothing at {target}", page.display());
            if let Some(anchor) = anchor {
                let there = anchors(&prose(&read(&path)));
                assert!(there.contains(anchor), "{}: no heading for {target}", page.display());
            }
        }
    }
    assert!(seen > 50, "only {seen} links were found");
}

/// Pages link tests as evidence, so the tests have to exist.
#[test]
fn linked_tests_exist() {
    let mut seen = 0;
    for page in pages() {
        let text = prose(&read(&page));
        for rest in text.split("[`").skip(1) {
            let Some((name, rest)) = rest.split_once("`](") else { continue };
            let target = rest.split(')').next().expect("a target");
            if Path::new(target).extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            seen += 1;
            let source = read(&page.parent().expect("a folder").join(target));
            assert!(source.contains(&format!("fn {name}(")), "{}: no {name} in {target}", page.display());
        }
    }
    assert!(seen > 15, "only {seen} tests are named");
}

#[test]
fn the_configuration_page_shows_every_key_with_its_default() {
    let page = read(&root().join("docs/configuration.md"));
    let mut keys = BTreeSet::new();
    for block in blocks(&page, "yaml").iter().filter(|block| !block.contains("resources:")) {
        let config = Config::parse(block).unwrap_or_else(|faults| panic!("{faults}\n{block}"));
        let mut policy = config.policy().clone();
        // Examples, since the default is empty.
        policy.image_rules.clear();
        policy.extra_env.clear();
        assert_eq!(
            (policy, config.strictness()),
            (Policy::default(), Config::default().strictness()),
            "{block}"
        );
        keys.extend(block.lines().filter(|line| !line.starts_with([' ', '#'])).map(str::to_owned));
    }
    let shipped = read(&root().join("manifests/base/config.yaml"));
    for line in shipped.lines().filter_map(|line| line.strip_prefix("# ")) {
        let key = line.split(':').next().expect("a key");
        if line.contains(':') && key.chars().all(|c| c.is_ascii_alphanumeric()) {
            assert!(keys.iter().any(|shown| shown.starts_with(&format!("{key}:"))), "{key} is not explained");
        }
    }
}

#[test]
fn the_page_of_the_node_check_has_every_check_reason_and_key() {
    use strum::VariantArray as _;
    use swansong_agent::config::Config;
    use swansong_agent::finding::{CheckName, Reason};
    use swansong_agent::preload::{DiscoveryReason, HookReason, PreloadReason};
    use swansong_agent::readiness::ConditionReason;
    let page = read(&root().join("docs/agent.md"));
    for name in CheckName::VARIANTS {
        assert!(page.contains(&format!("`{}`", name.as_str())), "{} is not explained", name.as_str());
    }
    let table = |head: &str| -> Vec<&str> {
        let rows = page.lines().skip_while(|line| !line.starts_with(head)).skip(2);
        rows.take_while(|line| line.starts_with('|')).collect()
    };
    let reasons = Reason::VARIANTS.iter().map(|reason| {
        let (name, status) = (reason.as_str(), reason.status().as_str());
        format!("| `{name}` | {status} | {} | {} |", reason.meaning(), reason.remedy())
    });
    assert_eq!(table("| reason |"), reasons.collect::<Vec<_>>());
    let reasons = ConditionReason::VARIANTS.iter();
    let reasons = reasons
        .map(|reason| format!("| `{}` | {} | {} |", reason.as_str(), reason.meaning(), reason.remedy()));
    assert_eq!(table("| condition's reason |"), reasons.collect::<Vec<_>>());
    let reasons = PreloadReason::VARIANTS.iter();
    let reasons = reasons
        .map(|reason| format!("| `{}` | {} | {} |", reason.as_str(), reason.meaning(), reason.remedy()));
    assert_eq!(table("| preload reason |"), reasons.collect::<Vec<_>>());
    let reasons = HookReason::VARIANTS.iter();
    let reasons = reasons
        .map(|reason| format!("| `{}` | {} | {} |", reason.as_str(), reason.meaning(), reason.remedy()));
    assert_eq!(table("| hook reason |"), reasons.collect::<Vec<_>>());
    let reasons = DiscoveryReason::VARIANTS.iter();
    let reasons = reasons
        .map(|reason| format!("| `{}` | {} | {} |", reason.as_str(), reason.meaning(), reason.remedy()));
    assert_eq!(table("| discovery reason |"), reasons.collect::<Vec<_>>());
    let blocks = blocks(&page, "yaml");
    let [block] = &blocks[..] else { panic!("one configuration, not {}", blocks.len()) };
    assert_eq!(Config::parse(block), Ok(Config::default()));
    // What is commented out is an example of a key without a default.
    let uncommented = |line: &str| {
        let text = line.trim_start();
        let indent = &line[..line.len() - text.len()];
        format!("{indent}{}\n", text.strip_prefix("# ").unwrap_or(text))
    };
    let all: String = block.lines().map(uncommented).collect();
    Config::parse(&all).unwrap_or_else(|faults| panic!("{faults}\n{all}"));
}

/// The CamelCase names of several words in the string literals of a file.
fn reasons_in(path: &str) -> BTreeSet<String> {
    let code = read(&root().join(path));
    let product = code.split("#[cfg(test)]").next().expect("code");
    let literals = product.split('"').skip(1).step_by(2);
    let is_reason = |text: &&str| {
        text.starts_with(|first: char| first.is_ascii_uppercase())
            && text.chars().all(|char| char.is_ascii_alphabetic())
            && text.chars().filter(char::is_ascii_uppercase).count() > 1
            && text.chars().any(|char| char.is_ascii_lowercase())
    };
    literals.filter(is_reason).map(str::to_owned).collect()
}

/// The names in a column of the table that begins with `header`. Each row also has a meaning and what to do.
fn rows(page: &str, header: &str, column: usize) -> BTreeSet<String> {
    let table = page.split_once(header).unwrap_or_else(|| panic!("no table {header}")).1;
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let sentences = &cells[cells.len() - 2..];
        assert!(cells.len() > 2 && sentences.iter().all(|sentence| sentence.ends_with('.')), "{row}");
        cells[column].trim_matches('`').to_owned()
    })
    .collect()
}

#[test]
fn every_reason_of_faults_and_reset_configs_has_a_meaning_and_a_remedy() {
    let page = read(&root().join("docs/faults.md"));
    let code = read(&root().join("agent/faults/src/preflight.rs"));
    let (_, variants) = code.split_once("pub enum Why {").expect("the objections");
    let variants = variants.split("\n}").next().expect("its end").lines();
    let objections = variants.filter_map(|line| line.strip_prefix("    ")?.split(['(', ',']).next());
    let objections = objections.filter(|name| name.starts_with(|first: char| first.is_ascii_uppercase()));
    assert_eq!(rows(&page, "| objection | meaning", 0), objections.map(str::to_owned).collect());
    assert_eq!(rows(&page, "| Event | on | meaning", 0), reasons_in("agent/faults/src/events.rs"));
    let mut condition = reasons_in("agent/faults/src/condition.rs");
    let plugin = reasons_in("agent/faults/model/src/device_plugin/tracker.rs").into_iter();
    condition.extend(plugin.filter(|name| name.ends_with("Missing") || name.ends_with("Invalid")));
    condition.remove("FaultsRelayed");
    assert_eq!(rows(&page, "| status | reason | meaning", 1), condition);
    let page = read(&root().join("docs/reset-config.md"));
    let mut events = reasons_in("webhook/reset-config/src/events.rs");
    events.extend(reasons_in("webhook/reset-config/src/decide.rs"));
    assert_eq!(rows(&page, "| Event on the job | meaning", 0), events);
}

#[test]
fn clusterd_page_lists_every_code() {
    let page = read(&root().join("docs/clusterd.md"));
    for class in Class::VARIANTS {
        let row = format!("| `{}` | `{}` | {} |", class.code(), class.list(), class.description());
        assert!(page.lines().any(|line| line == row), "{row}");
    }
}

#[test]
fn the_example_job_is_injected_without_a_warning() {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&read(&root().join("docs/examples/ascendjob-pytorch.yaml")))
            .expect("YAML");
    let [config_map, job] = &documents[..] else { panic!("{documents:?}") };
    let outcome =
        inject(WorkloadKind::AscendJob, &job.to_string(), &Policy::default()).expect("an AscendJob");
    assert!(outcome.injected());
    assert_eq!(outcome.warnings, []);
    assert_eq!(outcome.templates.len(), 2);
    assert_eq!(
        config_map["metadata"]["name"],
        format!("reset-config-{}", job["metadata"]["name"].as_str().expect("a name"))
    );
}

/// Runs a line of the documentation as a shell in the repository would; both outputs, as a terminal shows them.
fn run(line: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_swansong"));
    let path = std::env::var("PATH").expect("a PATH");
    let folder = program.parent().expect("a folder").display();
    let output = Command::new("bash")
        .args(["-c", &format!("exec 2>&1; {line}")])
        .current_dir(root())
        .env("PATH", format!("{folder}:{path}"))
        .output()
        .expect("bash runs");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A block of commands, each followed by its output.
fn rerun(block: &str) -> String {
    let commands = block.lines().filter_map(|line| line.strip_prefix("$ "));
    let sessions: Vec<String> = commands.map(|line| format!("$ {line}\n{}", run(line))).collect();
    sessions.concat().trim_end().to_owned()
}

#[test]
fn commands_print_what_the_pages_show() {
    let mut seen = 0;
    for page in pages() {
        let text = read(&page);
        let mut renewed = text.clone();
        for block in blocks(&text, "console").iter().filter(|block| block.contains("swansong ")) {
            seen += 1;
            let real = rerun(block);
            if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
                renewed = renewed.replace(block, &real);
            } else {
                assert_eq!(block, &real, "{}", page.display());
            }
        }
        if renewed != text {
            fs::write(&page, renewed).expect("the page");
        }
    }
    assert!(seen >= 5, "only {seen} blocks were run");
}

/// The metrics of a webhook after its start.
fn metrics() -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    fs::write(&certificate, pair.cert.pem()).expect("tls.crt");
    fs::write(&key, pair.signing_key.serialize_pem()).expect("tls.key");
    let mut command = Command::new(env!("CARGO_BIN_EXE_swansong"));
    command
        .args(["webhook", "--listen", "127.0.0.1:0", "--health-listen", "127.0.0.1:0"])
        .arg("--tls-cert")
        .arg(&certificate)
        .arg("--tls-key")
        .arg(&key);
    scrape(command, |_| true)
}

/// Runs a command until its metrics satisfy `enough`.
fn scrape(mut command: Command, enough: impl Fn(&str) -> bool) -> String {
    let mut program =
        command.args(["--log-format", "json"]).stderr(Stdio::piped()).spawn().expect("it starts");
    let log = BufReader::new(program.stderr.take().expect("a log"));
    let mut log = log.lines();
    let address = log.find_map(|line| {
        let entry: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        entry["health_address"].as_str().map(str::to_owned)
    });
    let mut text = String::new();
    if let Some(address) = address {
        let deadline = Instant::now() + Duration::from_mins(1);
        while text.is_empty() || (!enough(&text) && Instant::now() < deadline) {
            text.clear();
            let mut stream = TcpStream::connect(&address).expect("the health port");
            stream
                .write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                .expect("a request");
            stream.read_to_string(&mut text).expect("an answer");
        }
    }
    program.kill().and_then(|()| program.wait()).expect("it ends");
    assert!(enough(&text), "{text}");
    text
}

fn metrics_shown(page: &str, of_agent: bool) -> BTreeSet<(&str, &str)> {
    page.lines()
        .filter_map(|line| line.strip_prefix("| `swansong_"))
        .filter(|row| row.starts_with("agent_") == of_agent)
        .map(|row| {
            let (name, rest) = row.split_once("` | ").expect("a name");
            (name, rest.split([' ', ',']).next().expect("a type"))
        })
        .collect()
}

fn metrics_exported(text: &str) -> BTreeSet<(&str, &str)> {
    let exported: BTreeSet<(&str, &str)> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE swansong_")?.split_once(' ')).collect();
    assert!(exported.len() > 5, "{text}");
    exported
}

/// The metrics of an agent without an API server after its first round of checks.
fn agent_metrics() -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let config = r#"{"clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}], "users": [{"name": "u", "user": {}}], "current-context": "c"}"#;
    fs::write(&kubeconfig, config).expect("a kubeconfig");
    let mut command = Command::new(env!("CARGO_BIN_EXE_swansong"));
    command
        .args(["agent", "--health-listen", "127.0.0.1:0", "--node", "n", "--host-root"])
        .arg(folder.path());
    command.env("KUBECONFIG", &kubeconfig).env_remove("KUBERNETES_SERVICE_HOST");
    scrape(command, |text| text.contains("swansong_agent_check{"))
}

#[test]
fn the_metrics_page_lists_every_metric() {
    let page = read(&root().join("docs/metrics.md"));
    let (shown, text) = (metrics_shown(&page, false), metrics());
    let exported = metrics_exported(&text);
    // These are exported after their first event.
    let later =
        BTreeSet::from([("review_warnings_total", "counter"), ("tls_reload_failures_total", "counter")]);
    assert_eq!(shown, &exported | &later);
    assert_eq!(metrics_shown(&page, true), metrics_exported(&agent_metrics()));
}

#[test]
fn both_readmes_show_the_same_output() {
    let (english, chinese) = (read(&root().join("README.md")), read(&root().join("README.zh.md")));
    for language in ["console", "text"] {
        assert_eq!(blocks(&english, language), blocks(&chinese, language), "{language}");
    }
    let rows = |text: &str| {
        text.lines().filter(|line| line.starts_with("| ") && line.contains("**Swansong**")).count()
    };
    assert_eq!(rows(&english), rows(&chinese));
}
