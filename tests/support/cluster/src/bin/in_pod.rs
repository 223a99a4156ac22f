//! For the tests, a program for a pod: asks the API server for its version, as every client in a pod would, by
//! the Service `kubernetes` and with the pod's service account.

use std::error::Error;
use std::io::{self, Write};

use kube::{Client, Config};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = Client::try_from(Config::incluster()?)?;
    let version = client.apiserver_version().await?;
    writeln!(io::stdout(), "{}", version.git_version)?;
    Ok(())
}
