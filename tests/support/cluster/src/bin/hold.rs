//! For the tests: starts a cluster, prints a line of JSON about it, and keeps it until standard input ends.
//!
//! `cargo run -p swansong-testcluster --bin hold -- node`

use std::error::Error;
use std::io::{self, Write};

use swansong_testcluster::{Cluster, Tier};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let tier: Tier = std::env::args().nth(1).unwrap_or_else(|| "api".to_owned()).parse()?;
    let cluster = Cluster::start(tier).await?;
    writeln!(io::stdout(), "{}", serde_json::to_string(cluster.info())?)?;
    // Until standard input ends, or until a signal ends this process without asking it.
    io::copy(&mut io::stdin().lock(), &mut io::sink())?;
    Ok(())
}
