//! Connections with ClusterD's limits: their number, and the frequency of pings.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tonic::transport::server::Connected;

/// Limit of all connections.
const TOTAL: usize = 1024;
/// Minimum interval of pings.
const PING_INTERVAL: Duration = Duration::from_secs(3);
/// Number of early pings that are allowed.
const FORGIVEN: u32 = 2;

/// Numbers of connections.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub open: usize,
    /// The largest number of open connections so far.
    pub most: usize,
    pub accepted: usize,
    /// Closed because of the limits.
    pub refused: usize,
    /// Closed because of too frequent pings.
    pub too_many_pings: usize,
}

#[derive(Debug)]
pub(crate) struct Connections {
    /// Limit of connections from one address.
    per_source: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    count: Count,
    by_source: HashMap<IpAddr, usize>,
    switches: HashMap<SocketAddr, Arc<Switch>>,
}

/// Resets a connection from another task.
#[derive(Debug, Default)]
struct Switch {
    off: AtomicBool,
    waker: AtomicWaker,
}

impl Connections {
    pub(crate) fn new(per_source: usize) -> Self {
        Self { per_source, inner: Mutex::default() }
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self) -> Count {
        self.inner().count
    }

    /// Accepts the connection unless there are too many.
    pub(crate) fn accept(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr) -> Option<Connection> {
        let mut inner = self.inner();
        let from_peer = inner.by_source.get(&peer.ip()).copied().unwrap_or_default();
        if inner.count.open >= TOTAL || from_peer >= self.per_source {
            inner.count.refused += 1;
            return None;
        }
        inner.by_source.insert(peer.ip(), from_peer + 1);
        let count = &mut inner.count;
        count.open += 1;
        count.accepted += 1;
        count.most = count.most.max(count.open);
        let switch = Arc::new(Switch::default());
        inner.switches.insert(peer, Arc::clone(&switch));
        drop(inner);
        let pings = Pings::default();
        Some(Connection { stream, peer, switch, pings, connections: Arc::clone(self) })
    }

    /// Resets all connections.
    pub(crate) fn reset(&self) {
        for switch in self.inner().switches.values() {
            switch.throw();
        }
    }

    /// Resets the connection of `peer`.
    pub(crate) fn reset_one(&self, peer: SocketAddr) {
        if let Some(switch) = self.inner().switches.get(&peer) {
            switch.throw();
        }
    }
}

impl Switch {
    fn throw(&self) {
        self.off.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Whether `throw` was called; registers `context` to be woken by it.
    fn is_off(&self, context: &Context<'_>) -> bool {
        self.waker.register(context.waker());
        self.off.load(Ordering::Acquire)
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    switch: Arc<Switch>,
    pings: Pings,
    connections: Arc<Connections>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut inner = self.connections.inner();
        inner.count.open -= 1;
        inner.switches.remove(&self.peer);
        if let Some(from_peer) = inner.by_source.get_mut(&self.peer.ip()) {
            *from_peer -= 1;
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = SocketAddr;

    fn connect_info(&self) -> SocketAddr {
        self.peer
    }
}

fn reset() -> io::Error {
    io::Error::from(io::ErrorKind::ConnectionReset)
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.switch.is_off(context) {
            // The peer gets RST instead of FIN.
            let _ = this.stream.set_zero_linger();
            return Poll::Ready(Err(reset()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        if read.is_ready() && this.pings.see(&buffer.filled()[before..], Instant::now()) {
            this.connections.inner().count.too_many_pings += 1;
            // A partial write is enough, since the connection ends anyway.
            let _ = Pin::new(&mut this.stream).poll_write(context, &go_away());
            buffer.set_filled(before);
            return Poll::Ready(Ok(()));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.switch.is_off(context) {
            let _ = self.stream.set_zero_linger();
            return Poll::Ready(Err(reset()));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The `GOAWAY` frame with `ENHANCE_YOUR_CALM` that grpc-go sends.
fn go_away() -> Vec<u8> {
    let debug = b"too_many_pings";
    let length = 8 + debug.len();
    let mut frame = vec![0, 0, u8::try_from(length).unwrap_or_default(), 0x7, 0, 0, 0, 0, 0];
    frame.extend(0x7fff_ffff_u32.to_be_bytes());
    frame.extend(0xb_u32.to_be_bytes());
    frame.extend(debug);
    frame
}

/// Counts the pings in the bytes of an HTTP/2 client.
#[derive(Debug, Default)]
struct Pings {
    /// Bytes of the preface and of frame headers seen so far.
    preface: usize,
    header: Vec<u8>,
    /// Bytes of the current frame's payload that haven't been received.
    payload: usize,
    last: Option<Instant>,
    strikes: u32,
}

/// Length of `PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n`.
const PREFACE: usize = 24;
const HEADER: usize = 9;

impl Pings {
    /// Whether the client has pinged too often.
    fn see(&mut self, bytes: &[u8], now: Instant) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.preface < PREFACE {
                let taken = rest.len().min(PREFACE - self.preface);
                self.preface += taken;
                rest = &rest[taken..];
            } else if self.payload > 0 {
                let taken = rest.len().min(self.payload);
                self.payload -= taken;
                rest = &rest[taken..];
            } else {
                let taken = rest.len().min(HEADER - self.header.len());
                self.header.extend(&rest[..taken]);
                rest = &rest[taken..];
                if let [a, b, c, kind, flags, ..] = self.header[..]
                    && self.header.len() == HEADER
                {
                    self.payload = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
                    self.header.clear();
                    // Type 6 is a ping, flag 1 is set in its acknowledgement.
                    if kind == 6 && flags & 1 == 0 {
                        self.ping(now);
                    }
                }
            }
        }
        self.strikes > FORGIVEN
    }

    fn ping(&mut self, now: Instant) {
        if self.last.is_some_and(|last| now - last < PING_INTERVAL) {
            self.strikes += 1;
        }
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: [u8; 17] = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

    #[test]
    fn pings_are_counted_however_the_bytes_arrive() {
        for size in 1..20 {
            let mut pings = Pings::default();
            let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
            bytes.extend([0, 0, 4, 0, 0, 0, 0, 0, 0, 6, 6, 6, 6]);
            let start = Instant::now();
            bytes.extend(PING.repeat(3));
            let early = bytes.chunks(size).any(|chunk| pings.see(chunk, start));
            assert!(!early, "two strikes are forgiven");
            assert!(PING.chunks(size).any(|chunk| pings.see(chunk, start + Duration::from_secs(2))));
        }
    }

    #[test]
    fn pings_that_are_far_apart_are_fine() {
        let mut pings = Pings { preface: PREFACE, ..Pings::default() };
        let start = Instant::now();
        assert!((0..100).all(|i| !pings.see(&PING, start + Duration::from_secs(3 * i))));
    }
}
