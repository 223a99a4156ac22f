//! The pace of a connection: how long it may be silent, take over a request's head, or leave an answer unread.
//!
//! hyper has one time for all that comes before a request. Here a connection without a request may wait for minutes,
//! as the API server keeps its own, while a head that has begun must be whole within seconds.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep_until};

use super::metrics::Closed;

/// How long a connection may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// Without the first byte of a request.
    pub(super) idle: Duration,
    /// From the first byte of a request to the end of its head.
    pub(super) head: Duration,
    /// With an answer, or a part of it, that the client doesn't read.
    pub(super) write: Duration,
}

/// What a connection is about: told by its service, asked by its stream and by whoever looks for a place.
#[derive(Debug)]
pub(super) struct Activity {
    start: Instant,
    /// Nanoseconds from `start` to the end of the last request, or [`BUSY`].
    idle_since: AtomicU64,
    /// Requests answered.
    served: AtomicU32,
    /// Set when the connection is asked to give way to another.
    give_way: OnceLock<()>,
    asked: Notify,
    /// Why it was closed by us.
    closed: OnceLock<Closed>,
}

const BUSY: u64 = u64::MAX;

impl Activity {
    /// Of a new connection, which waits for its first request.
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            idle_since: AtomicU64::new(0),
            served: AtomicU32::new(0),
            give_way: OnceLock::new(),
            asked: Notify::new(),
            closed: OnceLock::new(),
        }
    }

    /// A request's head is there.
    pub(super) fn begin(&self) {
        self.idle_since.store(BUSY, Relaxed);
    }

    /// Its answer is made.
    pub(super) fn end(&self) {
        let since = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(BUSY - 1);
        self.served.fetch_add(1, Relaxed);
        self.idle_since.store(since, Relaxed);
    }

    /// Since when it waits for a request, if it does.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        match self.idle_since.load(Relaxed) {
            BUSY => None,
            since => Some(self.start + Duration::from_nanos(since)),
        }
    }

    /// Asks the connection to give way; whether this is the first time.
    pub(super) fn ask_to_give_way(&self) -> bool {
        let first = self.give_way.set(()).is_ok();
        self.asked.notify_one();
        first
    }

    pub(super) fn is_asked_to_give_way(&self) -> bool {
        self.give_way.get().is_some()
    }

    /// Comes when the connection is asked to give way.
    pub(super) async fn asked_to_give_way(&self) {
        self.asked.notified().await;
    }

    /// Why it was closed by us, if it was.
    pub(super) fn closed(&self) -> Option<Closed> {
        self.closed.get().copied()
    }

    pub(super) fn close(&self, cause: Closed) {
        let _ = self.closed.set(cause);
    }
}

/// A stream that keeps the pace, or ends in an error.
pub(super) struct Paced<S> {
    stream: S,
    activity: Arc<Activity>,
    times: Times,
    /// Requests that were answered when something was heard for the last time, and since when the rest is waited for.
    heard: Option<(u32, Option<Instant>)>,
    /// Since when something waits to be written.
    unwritten: Option<Instant>,
    read_alarm: Alarm,
    write_alarm: Alarm,
}

impl<S> Paced<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>, times: Times) -> Self {
        Self {
            stream,
            activity,
            times,
            heard: None,
            unwritten: None,
            read_alarm: Alarm::default(),
            write_alarm: Alarm::default(),
        }
    }

    fn hear(&mut self) {
        let served = self.activity.served.load(Relaxed);
        if self.heard.is_none_or(|(then, _)| then != served) {
            self.heard = Some((served, None));
        }
    }

    /// Until when there must be something to read. A request in hand has its own times.
    fn deadline(&mut self) -> Option<(Instant, Closed)> {
        let idle_since = self.activity.idle_since()?;
        let served = self.activity.served.load(Relaxed);
        Some(match &mut self.heard {
            Some((then, from)) if *then == served => {
                (*from.get_or_insert_with(Instant::now) + self.times.head, Closed::SlowHead)
            }
            _ => (idle_since + self.times.idle, Closed::Idle),
        })
    }

    fn wait_to_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some((deadline, cause)) = self.deadline() else { return Poll::Pending };
        ready!(self.read_alarm.poll(deadline, cx));
        Poll::Ready(Err(self.too_slow(cause)))
    }

    fn wait_to_write<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        let since = *self.unwritten.get_or_insert_with(Instant::now);
        ready!(self.write_alarm.poll(since + self.times.write, cx));
        Poll::Ready(Err(self.too_slow(Closed::SlowReader)))
    }

    fn too_slow(&self, cause: Closed) -> io::Error {
        self.activity.close(cause);
        io::ErrorKind::TimedOut.into()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buffer) {
            Poll::Ready(read) => {
                if buffer.filled().len() > before {
                    this.hear();
                }
                Poll::Ready(read)
            }
            Poll::Pending => this.wait_to_read(cx),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_write(cx, bytes) {
            Poll::Pending => this.wait_to_write(cx),
            written @ Poll::Ready(_) => written,
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_write_vectored(cx, slices) {
            Poll::Pending => this.wait_to_write(cx),
            written @ Poll::Ready(_) => written,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_flush(cx) {
            Poll::Pending => this.wait_to_write(cx),
            flushed @ Poll::Ready(_) => {
                // A reader that takes a byte now and then gets no more time by that: only the whole answer counts.
                this.unwritten = None;
                flushed
            }
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match Pin::new(&mut this.stream).poll_shutdown(cx) {
            Poll::Pending => this.wait_to_write(cx),
            shut @ Poll::Ready(_) => shut,
        }
    }
}

/// A timer that is set anew only when it must ring earlier: when it rings too early it is set to the right time then.
/// Most waits end long before, and so cost nothing.
#[derive(Debug, Default)]
struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    fn poll(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() > at {
            sleep.as_mut().reset(at);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if sleep.deadline() >= at {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(at);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::sleep;

    use super::*;

    const TIMES: Times =
        Times { idle: Duration::from_mins(2), head: Duration::from_secs(5), write: Duration::from_secs(3) };

    /// A paced stream over a pipe that holds 8 bytes, and its other end.
    fn paced() -> (Paced<DuplexStream>, DuplexStream, Arc<Activity>) {
        let (ours, theirs) = duplex(8);
        let activity = Arc::new(Activity::new());
        (Paced::new(ours, Arc::clone(&activity), TIMES), theirs, activity)
    }

    /// How long a read takes to fail, and why.
    async fn fails(stream: &mut Paced<DuplexStream>) -> (Duration, Closed) {
        let start = Instant::now();
        let error = stream.read_u8().await.expect_err("nothing comes");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        (start.elapsed(), stream.activity.closed().expect("a cause"))
    }

    fn about(took: Duration, expected: Duration) {
        assert!(took >= expected && took < expected + Duration::from_millis(10), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_may_last_as_long_as_idleness() {
        let (mut stream, _theirs, activity) = paced();
        sleep(Duration::from_secs(10)).await;
        let (took, cause) = fails(&mut stream).await;
        about(took, Duration::from_secs(110));
        assert_eq!((cause, activity.closed()), (Closed::Idle, Some(Closed::Idle)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_drips_has_no_more_time_than_one_that_stops() {
        let (mut stream, mut theirs, _) = paced();
        let start = Instant::now();
        let drip = tokio::spawn(async move {
            while theirs.write_u8(b'x').await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });
        let error = loop {
            if let Err(error) = stream.read_u8().await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        about(start.elapsed(), TIMES.head);
        assert_eq!(stream.activity.closed(), Some(Closed::SlowHead));
        drop(stream);
        drip.await.expect("it ends with the stream");
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_in_hand_has_its_own_times_and_the_next_head_its_own_again() {
        let (mut stream, mut theirs, activity) = paced();
        theirs.write_all(b"head").await.expect("written");
        let mut head = [0; 4];
        stream.read_exact(&mut head).await.expect("read");
        activity.begin();
        theirs.write_all(b"body").await.expect("written");
        stream.read_exact(&mut head).await.expect("read");
        let waited = tokio::time::timeout(Duration::from_mins(10), stream.read_u8()).await;
        assert!(waited.is_err(), "still waiting for the body");
        activity.end();
        // Idle now: what was heard belongs to the request that is answered.
        let waited = tokio::time::timeout(Duration::from_mins(1), stream.read_u8()).await;
        assert!(waited.is_err(), "still waiting for a request");
        theirs.write_all(b"h").await.expect("written");
        assert_eq!(stream.read_u8().await.expect("read"), b'h');
        let (took, cause) = fails(&mut stream).await;
        about(took, TIMES.head);
        assert_eq!(cause, Closed::SlowHead);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_read_byte_by_byte_has_no_more_time_than_one_unread() {
        let (mut stream, mut theirs, activity) = paced();
        let start = Instant::now();
        let reader = tokio::spawn(async move {
            while theirs.read_u8().await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        });
        let error = stream.write_all(&[0; 100]).await.expect_err("too slow");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        about(start.elapsed(), TIMES.write);
        assert_eq!(activity.closed(), Some(Closed::SlowReader));
        drop(stream);
        reader.await.expect("it ends with the stream");
    }

    #[tokio::test(start_paused = true)]
    async fn each_answer_has_its_own_time() {
        let (mut stream, mut theirs, activity) = paced();
        let reader = tokio::spawn(async move {
            let mut read = 0;
            while read < 3 * 12 && theirs.read_u8().await.is_ok() {
                read += 1;
                sleep(Duration::from_millis(200)).await;
            }
            read
        });
        for _ in 0..3 {
            stream.write_all(&[0; 12]).await.expect("written");
            stream.flush().await.expect("flushed");
            sleep(Duration::from_secs(2)).await;
        }
        assert_eq!(reader.await.expect("read"), 36);
        assert_eq!(activity.closed(), None);
    }
}
