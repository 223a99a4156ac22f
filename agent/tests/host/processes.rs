//! Scans of simulated procfs trees, and of real processes with a real LD_PRELOAD.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use procfs::process::Process;
use swansong_agent::host::Machine;
use swansong_agent::preload::{
    ContainerVerdict, HookReason, InjectedContainer, InjectedPod, Launcher, Outcome, PreloadReason,
    ScanError, Verdict, scan,
};
use swansong_trainer::{self as trainer, TrainerReason};

use swansong_fixtures::host::{Elf, Host};

const UID: &str = "0f4cbf1a-2b37-4c1d-9a8e-5d1c3b2a1f00";
const ID: &str = "5a0b6c2d3e4f5061728394a5b6c7d8e9f00112233445566778899aabbccddeef";
const GRACE: Duration = Duration::from_secs(30);

fn pod(id: Option<&str>, libraries: &[&str]) -> InjectedPod {
    let container = InjectedContainer {
        name: "ascend".to_owned(),
        id: id.map(str::to_owned),
        libraries: libraries.iter().map(|&library| library.to_owned()).collect(),
        launcher: Launcher::default(),
    };
    InjectedPod {
        uid: UID.to_owned(),
        namespace: "n".to_owned(),
        name: "p".to_owned(),
        containers: vec![container],
        discovery: None,
    }
}

fn group() -> String {
    format!("0::/kubepods/burstable/pod{UID}/{ID}\n")
}

/// A procfs with an uptime of 1,000 s and one process of the container, started at `started` seconds.
fn tree(pid: u32, started: u64) -> Host {
    let host = Host::bare();
    host.file("/proc/uptime", "1000.00 1000.00\n");
    add(&host, pid, started, 'S', &group());
    host
}

fn add(host: &Host, pid: u32, started: u64, state: char, group: &str) {
    let ticks = started * procfs::ticks_per_second();
    host.file(&format!("/proc/{pid}/stat"), format!("{pid} (python) {state} 1 1 1 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 {ticks} 1000 10 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"));
    host.file(&format!("/proc/{pid}/cgroup"), group);
    host.link(&format!("/proc/{pid}/exe"), "/usr/bin/python3.10");
    host.file(&format!("/proc/{pid}/environ"), "PATH=/bin\0LD_PRELOAD=/c/libmspti.so:/t/libtaskd.so\0");
    host.file(
        &format!("/proc/{pid}/maps"),
        "7f0000000000-7f0000001000 r-xp 00000000 fd:00 42                         /c/libmspti.so\n\
         7f0000002000-7f0000003000 r-xp 00000000 fd:00 43                         /t/libtaskd.so (deleted)\n\
         7ffc00000000-7ffc00001000 rw-p 00000000 00:00 0                          [stack]\n",
    );
    host.folder(&format!("/proc/{pid}/root"));
}

const BOTH: [&str; 2] = ["/c/libmspti.so", "/t/libtaskd.so"];

fn verdict(proc: &Path, pod: InjectedPod, grace: Duration) -> Verdict {
    let mut pods = scan(proc, &[pod], grace, Machine::X86_64).expect("a procfs");
    pods.remove(0).containers.remove(0).verdict.expect("of the libraries")
}

fn observe(host: &Host) -> (Outcome, PreloadReason) {
    let verdict = verdict(&host.path("/proc"), pod(Some(ID), &BOTH), GRACE);
    (verdict.outcome, verdict.reason)
}

#[test]
fn scans_processes_of_the_container() {
    assert_eq!(observe(&tree(20, 100)), (Outcome::Live, PreloadReason::PreloadLive));
    assert_eq!(observe(&tree(20, 980)), (Outcome::Unknown, PreloadReason::TooYoung));
    let host = tree(20, 100);
    let proc = host.path("/proc");
    let not_started = verdict(&proc, pod(None, &BOTH), GRACE);
    assert_eq!((not_started.outcome, not_started.reason), (Outcome::Unknown, PreloadReason::NotStarted));
    let other = verdict(&proc, pod(Some("feedfeedfeedfeed"), &BOTH), GRACE);
    assert_eq!(other.reason, PreloadReason::NoProcess);
    // The same container id under another pod is another container.
    let mut other_pod = pod(Some(ID), &BOTH);
    other_pod.uid = other_pod.uid.replace('0', "1");
    assert_eq!(verdict(&proc, other_pod, GRACE).reason, PreloadReason::NoProcess);
}

#[test]
fn processes_that_end_meanwhile_are_skipped() {
    for file in ["stat", "cgroup", "environ", "maps"] {
        let host = tree(20, 100);
        host.remove(&format!("/proc/20/{file}"));
        assert_eq!(observe(&host), (Outcome::Unknown, PreloadReason::NoProcess), "without {file}");
        add(&host, 21, 100, 'S', &group());
        assert_eq!(
            observe(&host),
            (Outcome::Live, PreloadReason::PreloadLive),
            "one without {file}, one with"
        );
    }
    let host = tree(20, 100);
    add(&host, 21, 100, 'Z', &group());
    host.file("/proc/21/environ", "");
    assert_eq!(observe(&host), (Outcome::Live, PreloadReason::PreloadLive), "a zombie has no environment");
}

/// The container's verdict on its launcher hook, and what its processes lack.
fn launcher(host: &Host) -> (HookReason, Vec<&'static str>) {
    let mut pod = pod(Some(ID), &[]);
    let hook = "/usr/local/lib/python3.10/dist-packages".to_owned();
    pod.containers[0].launcher = Launcher { hook: Some(hook), missing: vec!["TTP_ADDR"] };
    let mut pods = scan(&host.path("/proc"), &[pod], GRACE, Machine::X86_64).expect("a procfs");
    let container = pods.remove(0).containers.remove(0);
    assert_eq!(container.verdict, None, "nothing is preloaded");
    (container.launcher_hook.expect("a hook is expected").reason, container.missing_environment)
}

#[test]
fn launcher_hook_is_seen_by_its_open_file() {
    let host = tree(20, 100);
    host.file("/proc/20/cmdline", "/usr/bin/python3.10\0-m\0torch.distributed.run\0train.py\0");
    assert_eq!(launcher(&host), (HookReason::NoPermission, vec!["TTP_ADDR"]));
    host.folder("/proc/20/fd");
    assert_eq!(launcher(&host).0, HookReason::NotLoaded);
    host.file("/proc/20/cmdline", "/usr/bin/python3.10\0-sS\0train.py\0-m\0");
    assert_eq!(launcher(&host).0, HookReason::SiteDisabled);
    host.file("/proc/20/cmdline", "/opt/conda/bin/python3.10\0train.py\0-S\0");
    host.file("/proc/20/environ", "TTP_ADDR=10.0.0.1\0CONDA_PREFIX=/opt/conda\0");
    assert_eq!(launcher(&host), (HookReason::OtherInterpreter, vec![]));
    host.link("/proc/20/fd/3", "/usr/local/lib/python3.10/dist-packages/swansong_launcher_hook.py");
    assert_eq!(launcher(&host).0, HookReason::HookActive);
}

#[test]
fn unreadable_processes_are_unknown() {
    for file in ["environ", "maps"] {
        let host = tree(20, 100);
        // Reading a folder fails, as reading another user's process does without SYS_PTRACE.
        host.folder(&format!("/proc/20/{file}"));
        assert_eq!(observe(&host), (Outcome::Unknown, PreloadReason::NoPermission), "{file}");
    }
    let nothing = scan(Path::new("/proc/no/such"), &[], GRACE, Machine::X86_64);
    assert!(matches!(nothing, Err(ScanError::Proc { .. })));
}

#[test]
fn files_are_checked_in_the_root_of_the_container() {
    let without = "7ffc00000000-7ffc00001000 rw-p 00000000 00:00 0                          [stack]\n";
    for (name, content, expected) in [
        ("missing", None, PreloadReason::FileMissing),
        ("arm", Some(Elf::ARM.bytes()), PreloadReason::WrongArchitecture),
        ("text", Some(b"text".to_vec()), PreloadReason::NotALibrary),
        ("empty", Some(Vec::new()), PreloadReason::NotALibrary),
        ("sound", Some(Elf::X86.bytes()), PreloadReason::NotMapped),
    ] {
        let host = tree(20, 100);
        host.file("/proc/20/maps", without);
        if let Some(content) = content {
            host.file("/proc/20/root/opt/c/libmspti.so", &content);
            host.file("/proc/20/root/opt/t/libtaskd.so", &content);
        }
        // Absolute links, as CANN has them, resolve only inside the container.
        host.link("/proc/20/root/c", "/opt/c");
        host.link("/proc/20/root/t", "/opt/t");
        assert_eq!(observe(&host), (Outcome::NotLive, expected), "{name}");
    }
}

#[test]
fn a_link_is_mapped_by_the_name_of_its_target() {
    let host = tree(20, 100);
    host.file("/proc/20/root/c/libmspti.so.8", Elf::X86.bytes());
    host.link("/proc/20/root/c/libmspti.so", "libmspti.so.8");
    let maps = "7f0000000000-7f0000001000 r-xp 00000000 fd:00 42 /c/libmspti.so.8\n7f0000002000-7f0000003000 r-xp 00000000 fd:00 43 /t/libtaskd.so\n";
    host.file("/proc/20/maps", maps);
    assert_eq!(observe(&host), (Outcome::Live, PreloadReason::PreloadLive));
}

/// A trainer, a library and their folder, built by cc.
struct Workshop {
    folder: tempfile::TempDir,
}

const TRAINER: &str = r#"
#include <stdio.h>
#include <string.h>
extern char **environ;
int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "hide"))
        for (char **e = environ; *e; e++) memset(*e, 0, strlen(*e));
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
"#;

impl Workshop {
    fn new() -> Self {
        let workshop = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        fs::write(workshop.path("trainer.c"), TRAINER).expect("written");
        fs::write(workshop.path("library.c"), "int swansong_fake(void) { return 0; }\n").expect("written");
        workshop.cc(&["-o", "python3.10", "trainer.c"]);
        for library in ["libmspti.so", "libtaskd.so", "user.so"] {
            workshop.cc(&["-shared", "-fPIC", "-o", library, "library.c"]);
        }
        let foreign = if Machine::HOST == Machine::X86_64 { Elf::ARM } else { Elf::X86 };
        fs::create_dir(workshop.path("foreign")).expect("made");
        fs::write(workshop.path("foreign/libtaskd.so"), foreign.bytes()).expect("written");
        workshop
    }

    fn cc(&self, arguments: &[&str]) {
        let status = Command::new("cc").args(arguments).current_dir(self.folder.path()).status().expect("cc");
        assert!(status.success(), "cc {arguments:?}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().expect("plain").to_owned()
    }

    /// Runs a script until the trainer in it is ready.
    fn run(&self, preload: &str, script: &str) -> Run {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).current_dir(self.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.env_remove("LD_PRELOAD");
        if !preload.is_empty() {
            command.env("LD_PRELOAD", preload);
        }
        let mut shell = command.spawn().expect("sh");
        let mut line = String::new();
        let output = shell.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("read");
        assert_eq!(line, "ready\n", "{script}");
        let input = shell.stdin.take();
        Run { shell, input }
    }

    fn verdict(&self, run: &Run) -> Verdict {
        self.container(run).verdict.expect("of the libraries")
    }

    /// Scans a procfs that shows the run's real processes, put into the container's group.
    fn container(&self, run: &Run) -> ContainerVerdict {
        let host = Host::bare();
        let real = Path::new("/proc");
        symlink(real.join("uptime"), host.path("/proc/uptime")).expect("linked");
        for pid in run.pids() {
            let folder = host.path(&format!("/proc/{pid}"));
            fs::create_dir(&folder).expect("made");
            for file in ["stat", "environ", "maps", "root", "cmdline"] {
                symlink(real.join(pid.to_string()).join(file), folder.join(file)).expect("linked");
            }
            let program = fs::read_link(real.join(pid.to_string()).join("exe")).expect("alive");
            symlink(program, folder.join("exe")).expect("linked");
            let current = fs::read_link(real.join(pid.to_string()).join("cwd")).expect("alive");
            symlink(current, folder.join("cwd")).expect("linked");
            fs::write(folder.join("cgroup"), group()).expect("written");
        }
        let libraries = [self.text("libmspti.so"), self.text("libtaskd.so")];
        let pod = pod(Some(ID), &libraries.each_ref().map(String::as_str));
        let mut pods = scan(&host.path("/proc"), &[pod], Duration::ZERO, Machine::HOST).expect("a procfs");
        pods.remove(0).containers.remove(0)
    }
}

struct Run {
    shell: Child,
    input: Option<ChildStdin>,
}

impl Run {
    /// The shell, unless it became the trainer, and its children.
    fn pids(&self) -> Vec<i32> {
        let shell = i32::try_from(self.shell.id()).expect("a pid");
        let all = procfs::process::all_processes().expect("a procfs").flatten();
        let child = |process: &Process| process.stat().is_ok_and(|stat| stat.ppid == shell);
        all.filter(|process| process.pid() == shell || child(process)).map(|process| process.pid()).collect()
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // The trainer ends with its input, and the shell with the trainer.
        drop(self.input.take());
        let _ = self.shell.wait();
    }
}

/// The verdict on a training is that of its real arguments, variables, working directory and files.
#[test]
fn trainings_of_real_processes() {
    let workshop = Workshop::new();
    let train = "export HIGH_AVAILABILITY=dump WORLD_SIZE=16; exec ./python3.10 -u";
    let gpt = format!("{train} pretrain_gpt.py --use-distributed-optimizer --save /ckpt");
    fs::write(workshop.path("pretrain_gpt.py"), "from mindspeed_llm import megatron_adaptor\n")
        .expect("written");
    fs::create_dir(workshop.path("Megatron-LM")).expect("made");
    let settings = "use_parallel: true\ncontext: {mode: 0}\nrunner_config: {sink_size: 1}\n\
                    parallel: {enable_parallel_optimizer: false}\nparallel_config: {data_parallel: 2}\n";
    fs::write(workshop.path("run.yaml"), settings).expect("written");
    let pynative = settings.replace("mode: 0", "mode: 1");
    fs::write(workshop.path("pynative.yaml"), pynative).expect("written");
    let formers =
        "export MS_ENABLE_TFT='{TTP:1}'; exec ./python3.10 run_mindformer.py --run_mode train --config";
    for (script, outcome, reasons) in [
        (gpt.clone(), trainer::Verdict::Can, vec![]),
        (format!("{gpt} --lora-r 8"), trainer::Verdict::Cannot, vec![TrainerReason::LoraStopsJob]),
        (
            format!("{gpt} --tensor-model-parallel-size 16"),
            trainer::Verdict::Cannot,
            vec![TrainerReason::NoReplica],
        ),
        (
            gpt.replace("exec ", "unset HIGH_AVAILABILITY; exec "),
            trainer::Verdict::Cannot,
            vec![TrainerReason::HighAvailabilityOff],
        ),
        // Another program of the same name, of which only the folder is known.
        (
            gpt.replace("exec ./", "cd Megatron-LM; exec ../"),
            trainer::Verdict::Cannot,
            vec![TrainerReason::NoHighAvailability],
        ),
        (
            format!("{train} train.py --save /ckpt"),
            trainer::Verdict::Unknown,
            vec![TrainerReason::OwnApiUnseen],
        ),
        (
            format!("{formers} run.yaml"),
            trainer::Verdict::Can,
            vec![TrainerReason::ResumeNeedsHighAvailability],
        ),
        (
            format!("{formers} pynative.yaml"),
            trainer::Verdict::Cannot,
            vec![TrainerReason::GraphModeOff, TrainerReason::ResumeNeedsHighAvailability],
        ),
    ] {
        let run = workshop.run("", &script);
        let verdict = workshop.container(&run).trainer.unwrap_or_else(|| panic!("no training: {script}"));
        assert_eq!((verdict.outcome, &verdict.reasons), (outcome, &reasons), "{script}: {}", verdict.message);
    }
    let other = workshop.run("", "exec ./python3.10 manager.py");
    assert_eq!(workshop.container(&other).trainer, None);
}

#[test]
fn real_processes_under_a_real_preload() {
    let workshop = Workshop::new();
    let (mspti, taskd, user) =
        (workshop.text("libmspti.so"), workshop.text("libtaskd.so"), workshop.text("user.so"));
    let both = format!("{mspti}:{taskd}");
    symlink(&taskd, workshop.path("linked.so")).expect("linked");
    let run = "exec ./python3.10";
    for (name, preload, script, outcome, reason) in [
        ("both", both.clone(), run, Outcome::Live, PreloadReason::PreloadLive),
        ("both and the user's", format!("{both} {user}"), run, Outcome::Live, PreloadReason::PreloadLive),
        (
            "both, the shell stays",
            both.clone(),
            "./python3.10; exit",
            Outcome::Live,
            PreloadReason::PreloadLive,
        ),
        ("none", String::new(), run, Outcome::NotLive, PreloadReason::NotInEnvironment),
        (
            "cleared",
            both.clone(),
            "unset LD_PRELOAD; ./python3.10; exit",
            Outcome::NotLive,
            PreloadReason::ClearedByEntrypoint,
        ),
        (
            "overwritten",
            both.clone(),
            "export LD_PRELOAD=$PWD/user.so; ./python3.10; exit",
            Outcome::NotLive,
            PreloadReason::Overwritten,
        ),
        (
            "partly overwritten",
            both.clone(),
            "export LD_PRELOAD=$PWD/libmspti.so; ./python3.10; exit",
            Outcome::PartlyLive,
            PreloadReason::Overwritten,
        ),
        (
            "a file is missing",
            format!("{mspti}:/no/such/libtaskd.so"),
            run,
            Outcome::PartlyLive,
            PreloadReason::FileMissing,
        ),
        (
            "the other processor's",
            format!("{mspti}:{}", workshop.text("foreign/libtaskd.so")),
            run,
            Outcome::PartlyLive,
            PreloadReason::WrongArchitecture,
        ),
        (
            "no library",
            format!("{mspti}:{}", workshop.text("nonsense/libtaskd.so")),
            "mkdir nonsense; echo x > nonsense/libtaskd.so; exec ./python3.10",
            Outcome::PartlyLive,
            PreloadReason::NotALibrary,
        ),
        (
            "the environment is hidden",
            both.clone(),
            "exec ./python3.10 hide",
            Outcome::Unknown,
            PreloadReason::EnvironmentHidden,
        ),
    ] {
        let run = workshop.run(&preload, script);
        let verdict = workshop.verdict(&run);
        assert_eq!((verdict.outcome, verdict.reason), (outcome, reason), "{name}: {verdict:?}");
    }
}
