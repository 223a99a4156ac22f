//! Simulated agents: they answer `/status` on the machine's own address, since the API server passes nothing on to a
//! loopback address.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::routing::get;
use serde_json::Value;
use tokio::net::TcpListener;

/// The address from which this machine reaches others. Nothing is sent.
pub(super) fn machine_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket
        .connect("198.51.100.1:9")
        .expect("the machine has a network, by which the API server reaches the agents");
    socket.local_addr().unwrap().ip()
}

/// An agent of a node.
#[derive(Debug, Clone)]
pub(super) struct Agent {
    pub(super) address: SocketAddr,
    status: Arc<Mutex<Value>>,
}

impl Agent {
    pub(super) async fn start(address: IpAddr) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let status = Arc::new(Mutex::new(Value::Null));
        let shown = Arc::clone(&status);
        let answer = get(async move || shown.lock().unwrap().to_string());
        let router = Router::new().route("/status", answer);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, status }
    }

    pub(super) fn set(&self, status: Value) {
        *self.status.lock().unwrap() = status;
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Value)) {
        change(&mut self.status.lock().unwrap());
    }
}
