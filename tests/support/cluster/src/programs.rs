//! Building the Kubernetes programs.
//!
//! No package registry carries kube-apiserver and its siblings as binaries, but the Go module
//! proxy carries their source. `programs/go.mod` names them; the ordinary Go client builds them,
//! once, into a cache. The folder's name is a hash of everything that decides the result.
//! `SWANSONG_KUBERNETES=oldest` has tier `api` run the oldest Kubernetes that Swansong supports instead of the newest.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::prerequisites;
use crate::process;
use crate::{Error, Tier, cache};

const NEWEST: Module = Module {
    folder: "kubernetes",
    go_mod: include_str!("../programs/go.mod"),
    go_sum: include_str!("../programs/go.sum"),
};
const OLDEST: Module = Module {
    folder: "kubernetes-oldest",
    go_mod: include_str!("../programs/oldest/go.mod"),
    go_sum: include_str!("../programs/oldest/go.sum"),
};
const HELM: Module = Module {
    folder: "helm",
    go_mod: include_str!("../programs/helm/go.mod"),
    go_sum: include_str!("../programs/helm/go.sum"),
};
const KUBE_ROUTER: Module = Module {
    folder: "kube-router",
    go_mod: include_str!("../programs/kube-router/go.mod"),
    go_sum: include_str!("../programs/kube-router/go.sum"),
};
const CERT_MANAGER: Module = Module {
    folder: "cert-manager",
    go_mod: include_str!("../programs/cert-manager/go.mod"),
    go_sum: include_str!("../programs/cert-manager/go.sum"),
};
const PAUSE_SOURCE: &str = include_str!("../programs/pause.c");
/// Part of the fingerprint: to be raised when the way of building changes.
const RECIPE: &str = "2";

/// A Go module that names programs, and the folder of the cache that they are kept in.
struct Module {
    folder: &'static str,
    go_mod: &'static str,
    go_sum: &'static str,
}

impl Module {
    fn directory(&self) -> PathBuf {
        let fingerprint = cache::fingerprint(&[RECIPE, self.go_mod, self.go_sum, PAUSE_SOURCE]);
        cache::directory().join(self.folder).join(fingerprint)
    }

    /// The version that the module file requires of another module: `v1.…`.
    fn version_of(&self, module: &str) -> &'static str {
        let version = |line: &'static str| {
            line.trim().trim_start_matches("require ").strip_prefix(module)?.strip_prefix(' ')
        };
        let found = self.go_mod.lines().find_map(version);
        found
            .and_then(|rest| rest.split_whitespace().next())
            .unwrap_or_else(|| panic!("go.mod requires {module}"))
    }
}

/// One program: its file name, the Go package, and about how long the first build takes.
struct Source {
    name: &'static str,
    package: &'static str,
    first_time: &'static str,
}

const API: [Source; 3] = [
    Source { name: "etcd", package: "go.etcd.io/etcd/server/v3", first_time: "1 minute" },
    Source {
        name: "kube-apiserver",
        package: "k8s.io/kubernetes/cmd/kube-apiserver",
        first_time: "5 minutes",
    },
    Source { name: "kubectl", package: "k8s.io/kubernetes/cmd/kubectl", first_time: "30 seconds" },
];

const NODE: [Source; 4] = [
    Source {
        name: "kube-controller-manager",
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
        first_time: "90 seconds",
    },
    Source {
        name: "kube-scheduler",
        package: "k8s.io/kubernetes/cmd/kube-scheduler",
        first_time: "15 seconds",
    },
    Source { name: "kubelet", package: "k8s.io/kubernetes/cmd/kubelet", first_time: "30 seconds" },
    Source { name: "kube-proxy", package: "k8s.io/kubernetes/cmd/kube-proxy", first_time: "15 seconds" },
];

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    directory: PathBuf,
    /// The program that enforces NetworkPolicies, which isn't in the folder of the others.
    pub(crate) kube_router: Option<PathBuf>,
}

impl Programs {
    /// The folder that holds them.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// Makes sure that a tier's programs are there, building those that aren't.
///
/// `progress` gets a line for each step. Processes that build at the same time wait for one another.
pub fn ensure(tier: Tier, progress: &mut dyn FnMut(&str)) -> Result<Programs, Error> {
    let sources: Vec<_> = needed(tier).collect();
    if tier == Tier::Api && std::env::var_os("SWANSONG_KUBERNETES").is_some_and(|version| version == "oldest")
    {
        return ensure_oldest(&sources, progress);
    }
    ensure_built(&NEWEST, &sources, tier == Tier::Node, progress)
}

/// The oldest API server and kubectl, with the etcd of the newest.
fn ensure_oldest(sources: &[&Source], progress: &mut dyn FnMut(&str)) -> Result<Programs, Error> {
    let (kubernetes, etcd): (Vec<&Source>, Vec<&Source>) =
        sources.iter().partition(|source| source.package.starts_with("k8s.io/"));
    let newest = ensure_built(&NEWEST, &etcd, false, progress)?;
    let programs = ensure_built(&OLDEST, &kubernetes, false, progress)?;
    for source in etcd {
        let path = programs.path(source.name);
        if let Err(error) = std::os::unix::fs::symlink(newest.path(source.name), &path)
            && !path.is_file()
        {
            return Err(Error::file("link", &path)(error));
        }
    }
    Ok(programs)
}

fn ensure_built(
    module: &Module,
    sources: &[&Source],
    pause: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<Programs, Error> {
    let programs = Programs { directory: module.directory(), kube_router: None };
    let is_built = |name| programs.path(name).is_file();
    if sources.iter().all(|source| is_built(source.name)) && (!pause || is_built("pause")) {
        return Ok(programs);
    }
    let missing = prerequisites::for_building(if pause { Tier::Node } else { Tier::Api });
    if !missing.is_empty() {
        return Err(Error::Prerequisites(missing));
    }
    build_missing(module, &programs, sources, pause, progress)?;
    Ok(programs)
}

fn needed(tier: Tier) -> impl Iterator<Item = &'static Source> {
    let more: &[Source] = if tier == Tier::Node { &NODE } else { &[] };
    API.iter().chain(more)
}

fn build_missing(
    definition: &Module,
    programs: &Programs,
    sources: &[&Source],
    pause: bool,
    progress: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    let module = programs.directory.join("module");
    fs::create_dir_all(&module).map_err(Error::file("create", &module))?;
    let lock_path = programs.directory.join("lock");
    let lock = File::create(&lock_path).map_err(Error::file("create", &lock_path))?;
    if lock.try_lock().is_err() {
        progress("waiting for another process that builds the Kubernetes programs…");
        lock.lock().map_err(Error::file("lock", &lock_path))?;
    }
    let Module { go_mod, go_sum, .. } = definition;
    for (name, text) in [("go.mod", *go_mod), ("go.sum", *go_sum), ("pause.c", PAUSE_SOURCE)] {
        let path = module.join(name);
        fs::write(&path, text).map_err(Error::file("write", &path))?;
    }
    let all = sources.len();
    for (index, source) in sources.iter().enumerate() {
        if programs.path(source.name).is_file() {
            continue;
        }
        let Source { name, first_time, .. } = source;
        progress(&format!(
            "building {name} ({} of {all}), the first time this takes about {first_time}…",
            index + 1
        ));
        let started = Instant::now();
        build(programs, name, |output| go_build(&module, &linker_flags(definition), source.package, output))?;
        progress(&format!("built {name} in {} s", started.elapsed().as_secs()));
    }
    if pause && !programs.path("pause").is_file() {
        build(programs, "pause", |output| compile(&module.join("pause.c"), output))?;
    }
    Ok(())
}

/// Builds under another name and renames, so that a file under the final name is always whole.
fn build(programs: &Programs, name: &str, command: impl FnOnce(&Path) -> Command) -> Result<(), Error> {
    let unfinished = programs.path(&format!("{name}.unfinished"));
    let output = command(&unfinished)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::io(format!("run the compiler for {name}")))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = text.lines().collect();
        let reason = lines[lines.len().saturating_sub(20)..].join("\n");
        return Err(Error::Build { program: name.to_owned(), reason });
    }
    let path = programs.path(name);
    fs::rename(&unfinished, &path).map_err(Error::file("rename to", &path))
}

/// A compiler that ends with the supervisor, or a plain one in other programs, such as a test that needs kubectl alone.
fn compiler(name: &str) -> Command {
    let program = std::env::current_exe();
    let is_supervisor = program.is_ok_and(|path| path.file_name().is_some_and(|name| name == "testcluster"));
    if is_supervisor { process::bound(name) } else { Command::new(name) }
}

fn go_build(module: &Path, linker_flags: &str, package: &str, output: &Path) -> Command {
    let mut command = compiler("go");
    command
        .args(["build", "-ldflags", linker_flags, "-o"])
        .args([output.as_os_str(), package.as_ref()])
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        // A workspace file or flags of the user's own project must not change what is built.
        .env("GOWORK", "off")
        // A sixth less work for the compiler, for some memory.
        .env("GOGC", std::env::var_os("GOGC").unwrap_or_else(|| "200".into()))
        .env_remove("GOFLAGS");
    command
}

fn compile(source: &Path, output: &Path) -> Command {
    let mut command = compiler("cc");
    command.args(["-static", "-Os", "-s", "-o"]).args([output, source]);
    command
}

/// Without these, the API server reports a version of unexpanded placeholders, which clients compare.
fn linker_flags(module: &Module) -> String {
    if [KUBE_ROUTER.folder, CERT_MANAGER.folder].contains(&module.folder) {
        return "-s -w".to_owned();
    }
    if module.folder == HELM.folder {
        let version = module.version_of("helm.sh/helm/v4");
        return format!("-s -w -X helm.sh/helm/v4/internal/version.version={version}");
    }
    let version = module.version_of("k8s.io/kubernetes");
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or("1"), numbers.next().unwrap_or("0"));
    let values = [
        ("gitVersion", version),
        ("gitMajor", major),
        ("gitMinor", minor),
        ("gitTreeState", "clean"),
        ("gitCommit", ""),
    ];
    let packages = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"];
    let set = |package| values.map(|(name, value)| format!("-X {package}.{name}={value}"));
    format!("-s -w {}", packages.map(set).as_flattened().join(" "))
}

/// The version of Kubernetes that is built, as its module file names it: `v1.…`.
pub fn version() -> &'static str {
    NEWEST.version_of("k8s.io/kubernetes")
}

/// [`ensure`] that prints its progress to standard error.
pub fn ensure_with_progress(tier: Tier) -> Result<Programs, Error> {
    ensure(tier, &mut print_progress)
}

/// The path of kubectl, which is built if need be, without the other programs.
pub fn ensure_kubectl() -> Result<PathBuf, Error> {
    let kubectl: Vec<_> = API.iter().filter(|source| source.name == "kubectl").collect();
    Ok(ensure_built(&NEWEST, &kubectl, false, &mut print_progress)?.path("kubectl"))
}

/// The path of kube-router, which is built if need be.
pub(crate) fn ensure_kube_router() -> Result<PathBuf, Error> {
    let package = "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router";
    let router = Source { name: "kube-router", package, first_time: "2 minutes" };
    Ok(ensure_built(&KUBE_ROUTER, &[&router], false, &mut print_progress)?.path("kube-router"))
}

/// The path of helm, which is built if need be.
pub fn ensure_helm() -> Result<PathBuf, Error> {
    let helm = Source { name: "helm", package: "helm.sh/helm/v4/cmd/helm", first_time: "3 minutes" };
    Ok(ensure_built(&HELM, &[&helm], false, &mut print_progress)?.path("helm"))
}

/// cert-manager's programs, and the folder with its definitions, which are templates of Helm's.
#[derive(Clone, Debug)]
pub struct CertManager {
    /// The program that issues certificates.
    pub controller: PathBuf,
    /// The program that writes the `caBundle` of webhook configurations.
    pub ca_injector: PathBuf,
    /// The CustomResourceDefinitions, one per file.
    pub definitions: PathBuf,
}

/// cert-manager, which is built if need be.
pub fn ensure_cert_manager() -> Result<CertManager, Error> {
    let sources = [
        Source {
            name: "controller",
            package: "github.com/cert-manager/cert-manager/cmd/controller",
            first_time: "3 minutes",
        },
        Source {
            name: "cainjector",
            package: "github.com/cert-manager/cert-manager/cmd/cainjector",
            first_time: "15 seconds",
        },
    ];
    let sources: Vec<_> = sources.iter().collect();
    let programs = ensure_built(&CERT_MANAGER, &sources, false, &mut print_progress)?;
    let mut source = Command::new("go");
    source.args(["list", "-m", "-f", "{{.Dir}}", "github.com/cert-manager/cert-manager"]);
    source.current_dir(programs.path("module")).env("GOWORK", "off").env_remove("GOFLAGS");
    Ok(CertManager {
        controller: programs.path("controller"),
        ca_injector: programs.path("cainjector"),
        definitions: Path::new(process::run(&mut source)?.trim()).join("deploy/crds"),
    })
}

fn print_progress(line: &str) {
    // A closed standard error must not end a build.
    let _ = writeln!(io::stderr(), "testcluster: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_the_one_in_the_module_file() {
        assert!(version().starts_with("v1."), "{}", version());
        assert!(linker_flags(&NEWEST).contains(&format!("gitVersion={}", version())));
        assert!(OLDEST.version_of("k8s.io/kubernetes").starts_with("v1.30."));
        assert!(linker_flags(&HELM).ends_with(HELM.version_of("helm.sh/helm/v4")));
    }

    #[test]
    fn every_program_is_named_in_the_module_file() {
        for source in needed(Tier::Node) {
            assert!(NEWEST.go_mod.contains(source.package), "{}", source.package);
        }
    }
}
