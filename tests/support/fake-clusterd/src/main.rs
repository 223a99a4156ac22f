//! The stand-in as a program, for a Pod: what it takes is told on standard output, a line of JSON each.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use serde::Serialize;
use swansong_fake_clusterd::server::Clock;
use swansong_fake_clusterd::whitelist::Customization;
use swansong_fake_clusterd::{Settings, StandIn, cluster};

/// A stand-in ClusterD
#[derive(Debug, Parser)]
struct Arguments {
    /// Where to listen
    #[arg(long, default_value = "0.0.0.0:8899")]
    listen: SocketAddr,
    /// publicCustomization.json [default: Swansong's codes are installed]
    #[arg(long, value_name = "FILE")]
    customization: Option<PathBuf>,
    /// UID of a job that has registered; may be repeated
    #[arg(long, value_name = "UID")]
    job: Vec<String>,
    /// Read and write ConfigMaps
    #[arg(long)]
    cluster: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments = Arguments::parse();
    let mut settings = Settings { jobs: arguments.job.into_iter().collect(), ..Settings::default() };
    if let Some(file) = arguments.customization {
        settings.customization = Customization::File(file);
    }
    let stand_in = Arc::new(StandIn::start_at(arguments.listen, settings, Clock::running()).await?);
    println!("{{\"listening\":\"{}\"}}", stand_in.address());
    let tell = tell(Arc::clone(&stand_in));
    if arguments.cluster {
        let client = kube::Client::try_default().await?;
        tokio::join!(cluster::run(client, stand_in), tell);
    } else {
        tell.await;
    }
    Ok(())
}

/// Prints what is new in the ledger.
async fn tell(stand_in: Arc<StandIn>) {
    let mut told = (0, 0, 0, 0);
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    loop {
        ticks.tick().await;
        let ledger = stand_in.ledger();
        lines("taken", &ledger.taken, &mut told.0);
        lines("dropped", &ledger.dropped, &mut told.1);
        lines("kill", &ledger.kills, &mut told.2);
        lines("reported", &ledger.reported, &mut told.3);
    }
}

fn lines<T: Serialize>(what: &str, all: &[T], told: &mut usize) {
    for one in &all[*told..] {
        println!("{}", serde_json::json!({ what: one }));
    }
    *told = all.len();
}
