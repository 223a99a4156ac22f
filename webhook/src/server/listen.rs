//! Accepting connections and carrying them to their end.
//!
//! HTTP/1.1 only: that is what the API server speaks to webhooks (kubernetes#75791), with one request at a time on a
//! connection, so that the limit on connections is a limit on requests too.
//!
//! Before a connection has a place it is at the door: whoever connects and doesn't shake hands takes room there and
//! from nobody who did.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::metrics::{Closed, Held, Metrics};
use super::pace::{Activity, Paced, Times};
use super::places::Places;

/// The pause after an accept failed for want of resources, which closing connections give back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The most that is buffered of a connection's input before it is asked for, request heads included. A TLS record
/// isn't larger.
const BUFFER: usize = 16 << 10;

/// How long a newcomer waits for a place.
const PLACE_PATIENCE: Duration = Duration::from_secs(5);

/// Time for a handshake while more than three quarters of the doors are taken.
const HURRIED: Duration = Duration::from_secs(2);

/// One port and what is behind it.
pub(super) struct Port {
    pub(super) listener: TcpListener,
    /// `None` is plain HTTP, of which nothing is counted.
    pub(super) tls: Option<Handshake>,
    pub(super) router: Router,
    /// Connections that have no place yet.
    pub(super) doors: usize,
    pub(super) places: Arc<Places>,
    pub(super) times: Times,
    pub(super) metrics: Arc<Metrics>,
}

#[derive(Clone)]
pub(super) struct Handshake {
    pub(super) acceptor: TlsAcceptor,
    pub(super) patience: Duration,
}

impl Port {
    /// Serves until `stop` comes; then no connection is accepted any more, and those that are open end as soon as they
    /// have nothing in flight. Returns when all have ended.
    pub(super) async fn serve(self, mut stop: oneshot::Receiver<()>) {
        let Self { listener, tls, router, doors: most, places, times, metrics } = self;
        let mut http = http1::Builder::new();
        // The pace is kept by the stream.
        http.header_read_timeout(None).max_buf_size(BUFFER);
        let graceful = GracefulShutdown::new();
        let doors = Arc::new(Semaphore::new(most));
        loop {
            let next = async {
                // At the limit newcomers wait in the kernel's queue, where they cost nothing.
                let door = Arc::clone(&doors).acquire_owned().await;
                (door, accept(&listener).await)
            };
            let (door, stream) = tokio::select! {
                _ = &mut stop => break,
                next = next => next,
            };
            // The semaphore is never closed.
            let Ok(door) = door else { break };
            let newcomer = Newcomer {
                tls: tls.clone(),
                hurried: doors.available_permits() < most / 4,
                door,
                places: Arc::clone(&places),
                connection: Connection {
                    http: http.clone(),
                    router: router.clone(),
                    watcher: graceful.watcher(),
                    times,
                },
                metrics: Arc::clone(&metrics),
            };
            tokio::spawn(newcomer.carry(stream));
        }
        drop(listener);
        graceful.shutdown().await;
    }
}

async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Without it an answer may wait 40 ms for the peer's acknowledgement.
                if let Err(error) = stream.set_nodelay(true) {
                    debug!(%error, "TCP_NODELAY can't be set");
                }
                return stream;
            }
            Err(error) if of_the_peer(&error) => debug!(%error, "a connection ended before it was accepted"),
            Err(error) => {
                warn!(%error, "no connection can be accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn of_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset
    )
}

/// A connection at the door.
struct Newcomer {
    tls: Option<Handshake>,
    hurried: bool,
    door: OwnedSemaphorePermit,
    places: Arc<Places>,
    connection: Connection,
    metrics: Arc<Metrics>,
}

impl Newcomer {
    async fn carry(self, stream: TcpStream) {
        let Some(Handshake { acceptor, patience }) = &self.tls else {
            if let Some(place) = self.places.take(PLACE_PATIENCE).await {
                drop(self.door);
                self.connection.speak(stream, &place.activity).await;
            }
            return;
        };
        let metrics = &self.metrics;
        metrics.accepted.inc();
        let patience = if self.hurried { HURRIED.min(*patience) } else { *patience };
        let shaking = Held::of(&metrics.handshakes);
        let shaken = timeout(patience, acceptor.accept(stream)).await;
        drop(shaking);
        let stream = match shaken {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                metrics.handshake_failures.inc();
                debug!(%error, "TLS handshake failed");
                return;
            }
            Err(_) => {
                metrics.handshake_failures.inc();
                debug!(?patience, "TLS handshake took too long");
                return;
            }
        };
        let Some(place) = self.places.take(PLACE_PATIENCE).await else {
            metrics.closed(Closed::NoPlace);
            debug!("no place for a connection");
            return;
        };
        drop(self.door);
        let _held = Held::of(&metrics.connections);
        self.connection.speak(stream, &place.activity).await;
        if let Some(cause) = place.activity.closed() {
            metrics.closed(cause);
        }
    }
}

struct Connection {
    http: http1::Builder,
    router: Router,
    watcher: Watcher,
    times: Times,
}

impl Connection {
    async fn speak(
        self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        activity: &Arc<Activity>,
    ) {
        let router = TowerToHyperService::new(self.router);
        let service = service_fn({
            let activity = Arc::clone(activity);
            move |request| {
                activity.begin();
                let answer = router.call(request);
                let activity = Arc::clone(&activity);
                async move {
                    let answer = answer.await;
                    activity.end();
                    answer
                }
            }
        });
        let stream = Paced::new(stream, Arc::clone(activity), self.times);
        let connection = self.http.serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            end = self.watcher.watch(connection) => if let Err(error) = end {
                debug!(%error, "connection ended early");
            },
            () = activity.asked_to_give_way() => activity.close(Closed::GaveWay),
        }
    }
}
