//! A switch fails and hits a thousand of ten thousand nodes at once: with the relay and without.
#![allow(missing_docs)]

mod simulation;

use std::process::ExitCode;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use self::simulation::{Figures, Plan, run};

/// In which all faults have to be taken.
const GOAL: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    // Each connection has both its ends in this process.
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let plan = Plan { agents: 10_000, hit: 1000, relays: 2, bound: GOAL };
    println!(
        "{} agents, a switch fails and hits {} nodes at once; ClusterD's own limits",
        plan.agents, plan.hit
    );
    let with = runtime.block_on(run(plan));
    show("two relays", plan, &with);
    let plan = Plan { relays: 0, ..plan };
    let without = runtime.block_on(run(plan));
    show("no relay", plan, &without);
    let left = without.faults - without.taken;
    println!("  at one message a second, the {left} that are left take at least {left} s more");
    let well = with.taken == with.faults && with.reordered == 0 && without.reordered == 0;
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show(name: &str, plan: Plan, figures: &Figures) {
    let Figures { faults, taken, reordered, half, last, messages, refused, connections, memory, waiting } =
        figures;
    let seconds = |time: &Option<Duration>| {
        time.map_or_else(|| "-".to_owned(), |time| format!("{:.2} s", time.as_secs_f64()))
    };
    println!("{name}, looked at for at most {:?}:", plan.bound);
    println!("  taken by ClusterD     {taken} of {faults} faults, in {messages} messages");
    println!("  half of these after   {}, the last after {}", seconds(half), seconds(last));
    println!("  answers 410           {refused}");
    println!("  nodes out of order    {reordered}");
    println!("  connections at once   {connections} to ClusterD");
    println!("  left in the relays    {waiting}");
    println!("  most memory           {memory} MiB: agents, relays and ClusterD together");
}
