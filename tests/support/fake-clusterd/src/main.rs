//! The fake ClusterD as a program, for a Pod. It prints accepted faults and their effects as lines of JSON.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use serde::Serialize;
use swansong_fake_clusterd::server::Clock;
use swansong_fake_clusterd::whitelist::Customization;
use swansong_fake_clusterd::{FakeClusterd, Settings, cluster};

/// A fake ClusterD
#[derive(Debug, Parser)]
struct Arguments {
    /// Where to listen
    #[arg(long, default_value = "0.0.0.0:8899")]
    listen: SocketAddr,
    /// publicCustomization.json [default: Swansong's codes are installed]
    #[arg(long, value_name = "FILE")]
    customization: Option<PathBuf>,
    /// Read and write ConfigMaps
    #[arg(long)]
    cluster: bool,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let arguments = Arguments::parse();
    let mut settings = Settings::default();
    if let Some(file) = arguments.customization {
        settings.customization = Customization::File(file);
    }
    let clusterd = Arc::new(FakeClusterd::start_at(arguments.listen, settings, Clock::running()).await?);
    println!("{{\"listening\":\"{}\"}}", clusterd.address());
    let print = print_ledger(Arc::clone(&clusterd));
    if arguments.cluster {
        let client = kube::Client::try_default().await?;
        tokio::join!(cluster::run(client, clusterd), print);
    } else {
        print.await;
    }
    Ok(())
}

async fn print_ledger(clusterd: Arc<FakeClusterd>) {
    let mut printed = (0, 0, 0);
    let mut ticks = tokio::time::interval(Duration::from_millis(100));
    loop {
        ticks.tick().await;
        let ledger = clusterd.ledger();
        lines("accepted", &ledger.accepted, &mut printed.0);
        lines("dropped", &ledger.dropped, &mut printed.1);
        lines("kill", &ledger.kills, &mut printed.2);
    }
}

fn lines<T: Serialize>(what: &str, all: &[T], printed: &mut usize) {
    for one in &all[*printed..] {
        println!("{}", serde_json::json!({ what: one }));
    }
    *printed = all.len();
}
