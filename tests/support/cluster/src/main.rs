//! `testcluster`: a real Kubernetes on one machine.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use swansong_testcluster::supervisor::Announcement;
use swansong_testcluster::{Error, Info, Options, Tier, node, prerequisites, process, programs, supervisor};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

mod image_command;

/// A real Kubernetes on one machine.
#[derive(Parser)]
#[command(name = "testcluster", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cluster and keep it until Ctrl-C.
    Up(Up),
    /// Build the Kubernetes programs and end.
    Programs {
        /// For which tier: api or node.
        #[arg(long, default_value_t = Tier::Node)]
        tier: Tier,
    },
    /// Print what this machine lacks, and how to install it.
    Check {
        /// For which tier: api or node.
        #[arg(long, default_value_t = Tier::Node)]
        tier: Tier,
    },
    /// Make a container image from programs and files, without any registry.
    Image(Box<image_command::Image>),
    /// Become another program that dies with this one's parent.
    #[command(hide = true)]
    Become {
        parent: i32,
        program: OsString,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Enter the node's namespaces.
    #[command(hide = true)]
    EnterNode { spec: PathBuf },
    /// Be the node's first process.
    #[command(hide = true)]
    InitNode { spec: PathBuf },
}

#[derive(clap::Args)]
struct Up {
    /// How much of a cluster: api (no privileges needed) or node (needs root).
    #[arg(long, default_value_t = Tier::Api)]
    tier: Tier,
    /// Also write the kubeconfig to this file.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// An extended resource that the node offers [default: huawei.com/Ascend910=8].
    #[arg(long = "resource", value_name = "NAME=QUANTITY", value_parser = parse_pair)]
    resources: Vec<(String, String)>,
    /// Have the API server dial a webhook's endpoints instead of its Service's address (tier api always does).
    #[arg(long)]
    aggregator_routing: bool,
    /// Have kube-router enforce NetworkPolicies; the first time, it is built.
    #[arg(long)]
    network_policies: bool,
    /// Print one line of JSON once ready, and end at the end of standard input instead of at Ctrl-C.
    #[arg(long)]
    supervised: bool,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Up(up) => run_up(&up),
        Command::Programs { tier } => programs::ensure_with_progress(tier).map(|programs| {
            let _ = writeln!(io::stdout(), "{}", programs.directory().display());
        }),
        Command::Check { tier } => check(tier),
        Command::Image(image) => image.run(),
        Command::Become { parent, program, arguments } => {
            let source = process::r#become(parent, &program, &arguments);
            Err(Error::Io { what: "become another program".to_owned(), source })
        }
        Command::EnterNode { spec } => node::enter(&spec),
        Command::InitNode { spec } => node::init(&spec),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "testcluster: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check(tier: Tier) -> Result<(), Error> {
    let missing = prerequisites::check(tier);
    if missing.is_empty() {
        let _ = writeln!(io::stdout(), "tier {tier}: this machine has all that is needed");
        return Ok(());
    }
    Err(Error::Prerequisites(missing))
}

fn run_up(up: &Up) -> Result<(), Error> {
    let mut options = Options::from(up.tier);
    if !up.resources.is_empty() {
        options.resources = up.resources.iter().cloned().collect::<BTreeMap<_, _>>();
    }
    // One thread: the lives of the cluster's programs are tied to the thread that starts them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| Error::Io { what: "start the runtime".to_owned(), source })?;
    options.aggregator_routing |= up.aggregator_routing;
    options.network_policies = up.network_policies;
    let mut was_ready = false;
    let result = runtime.block_on(async {
        let stop = wait_for_end(up.supervised)?;
        let ready = |info: &Info| {
            was_ready = true;
            report_ready(up, info);
        };
        supervisor::run(&options, ready, stop).await
    });
    // A compiler that was interrupted isn't waited for.
    runtime.shutdown_background();
    match result {
        // The owner reports the error itself; it reads no more than one announcement.
        Err(error) if up.supervised && !was_ready => {
            print_line(&Announcement::Failed(error.to_string()));
            Ok(())
        }
        result => result,
    }
}

/// Becomes ready when the cluster is to end.
fn wait_for_end(supervised: bool) -> Result<impl Future<Output = ()>, Error> {
    let listen =
        |kind| signal(kind).map_err(|source| Error::Io { what: "listen for signals".to_owned(), source });
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    let (gone, owner_gone) = oneshot::channel();
    // For people the sender only has to stay alive.
    let mut unused = Some(gone);
    if supervised && let Some(gone) = unused.take() {
        // A separate thread, since a read from standard input can't be cancelled.
        std::thread::spawn(move || {
            let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
            let _ = gone.send(());
        });
    }
    Ok(async move {
        tokio::select! {
            _ = owner_gone => {}
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        drop(unused);
    })
}

fn report_ready(up: &Up, info: &Info) {
    if let Some(path) = &up.kubeconfig
        && let Err(error) = std::fs::copy(&info.kubeconfig, path)
    {
        let _ = writeln!(io::stderr(), "testcluster: could not write {}: {error}", path.display());
    }
    if up.supervised {
        print_line(&Announcement::Ready(Box::new(info.clone())));
        return;
    }
    let kubeconfig = up.kubeconfig.as_ref().unwrap_or(&info.kubeconfig).display();
    let (kubectl, logs) = (info.kubectl.display(), info.logs.display());
    let images = info.node.as_ref().map_or_else(String::new, |node| {
        let socket = node.containerd_socket.display();
        format!(
            "Load an image with\n\n  ctr --address {socket} --namespace k8s.io images import IMAGE.tar\n\n"
        )
    });
    let _ = writeln!(
        io::stdout(),
        "\nThe cluster is ready at {}. Use it from another terminal:\n\n  \
         export KUBECONFIG={kubeconfig}\n  {kubectl} get all -A\n\n\
         {images}Logs are in {logs}. End it with Ctrl-C.",
        info.api_url
    );
}

fn print_line(announcement: &Announcement) {
    let line = serde_json::to_string(announcement).unwrap_or_else(|error| {
        // A path that isn't UTF-8, for one.
        serde_json::json!({ "failed": error.to_string() }).to_string()
    });
    // The owner may be gone already; then the lifeline ends the cluster.
    let _ = writeln!(io::stdout(), "{line}");
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (name, quantity) = text.split_once('=').ok_or("say NAME=QUANTITY")?;
    Ok((name.to_owned(), quantity.to_owned()))
}
