//! A switch fails and hits a thousand of ten thousand nodes at once: with the gateway and without.

mod simulation;

use std::process::ExitCode;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use self::simulation::{Figures, Plan, run};

/// The time in which all faults have to be accepted.
const GOAL: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    // Each connection needs two file descriptors, as both ends are in this process.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let plan = Plan { agents: 10_000, hit: 1000, gateways: 2, limit: GOAL };
    println!(
        "{} agents, a switch fails and hits {} nodes at once; ClusterD's own limits",
        plan.agents, plan.hit
    );
    let with = runtime.block_on(run(plan));
    show("two gateways", plan, &with);
    let plan = Plan { gateways: 0, ..plan };
    let without = runtime.block_on(run(plan));
    show("no gateway", plan, &without);
    let left = without.faults - without.accepted;
    println!("  at one message a second, the {left} that remain take at least {left} s more");
    let ok = with.accepted == with.faults && with.reordered == 0 && without.reordered == 0;
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show(name: &str, plan: Plan, figures: &Figures) {
    let Figures { faults, accepted, reordered, half, last, messages, refused, connections, memory, queued } =
        figures;
    let seconds = |time: &Option<Duration>| {
        time.map_or_else(|| "-".to_owned(), |time| format!("{:.2} s", time.as_secs_f64()))
    };
    println!("{name}, observed for at most {:?}:", plan.limit);
    println!("  accepted by ClusterD  {accepted} of {faults} faults, in {messages} messages");
    println!("  half of these after   {}, the last after {}", seconds(half), seconds(last));
    println!("  responses 410         {refused}");
    println!("  nodes out of order    {reordered}");
    println!("  connections at once   {connections} to ClusterD");
    println!("  left in the gateways  {queued}");
    println!("  peak memory           {memory} MiB: agents, gateways and ClusterD together");
}
