//! Pairs in files that change in various ways.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use swansong_certs::{Event, FilePair, FileWatcher, Resolver, Source};
use tempfile::TempDir;

use crate::support::{DAY, IssuedCertificate, Recorder, TestClock, leaf, leaf_until, pair_of, start, until};

struct Fixture {
    directory: TempDir,
    clock: TestClock,
    events: Recorder,
    resolver: Arc<Resolver>,
    watcher: FileWatcher,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = TestClock::new();
        let events = Recorder::default();
        let resolver = Resolver::new();
        let watcher = FileWatcher::new(
            FilePair::in_directory(directory.path()),
            Arc::clone(&resolver),
            clock.as_clock(),
            events.observer(),
        );
        Self { directory, clock, events, resolver, watcher }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn serial(&self) -> String {
        self.resolver.current().unwrap().leaf.serial.clone()
    }
}

fn serial(leaf: &IssuedCertificate) -> String {
    let pair = pair_of(leaf.certificate.as_bytes(), leaf.key.as_bytes(), start()).unwrap();
    pair.leaf.serial.clone()
}

fn write(directory: &Path, leaf: &IssuedCertificate) {
    fs::write(directory.join("tls.crt"), &leaf.certificate).unwrap();
    fs::write(directory.join("tls.key"), &leaf.key).unwrap();
}

fn is_loaded(event: &Event) -> bool {
    matches!(event, Event::Loaded { .. })
}

/// As the kubelet does: the files are links through `..data`, which a rename replaces.
fn kubelet_swap(volume: &Path, generation: &str, leaf: &IssuedCertificate) {
    let directory = volume.join(generation);
    fs::create_dir(&directory).unwrap();
    write(&directory, leaf);
    symlink(generation, volume.join("..data_tmp")).unwrap();
    let before = fs::read_link(volume.join("..data"));
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    match before {
        Ok(before) => fs::remove_dir_all(volume.join(before)).unwrap(),
        Err(_) => {
            for file in ["tls.crt", "tls.key"] {
                symlink(Path::new("..data").join(file), volume.join(file)).unwrap();
            }
        }
    }
}

#[test]
fn follows_several_updates_of_a_mounted_secret() {
    let mut fixture = Fixture::new();
    for generation in ["..2026_1", "..2026_2", "..2026_3"] {
        let leaf = leaf();
        kubelet_swap(fixture.path(), generation, &leaf);
        fixture.watcher.poll().unwrap();
        assert_eq!(fixture.serial(), serial(&leaf), "{generation}");
    }
    assert_eq!(fixture.events.count(is_loaded), 3);
    fixture.watcher.poll().unwrap();
    assert_eq!(fixture.events.take().len(), 3, "unchanged files are not reported");
}

#[test]
fn a_half_written_pair_keeps_the_previous_one_and_is_reported_once() {
    let mut fixture = Fixture::new();
    let (old, new) = (leaf(), leaf());
    write(fixture.path(), &old);
    fixture.watcher.poll().unwrap();
    fixture.events.take();

    fs::write(fixture.path().join("tls.crt"), &new.certificate).unwrap();
    for _ in 0..3 {
        let error = fixture.watcher.poll().unwrap_err();
        assert!(error.to_string().contains("is not the key of the first certificate in"), "{error}");
        assert!(error.to_string().contains(&fixture.path().join("tls.key").display().to_string()), "{error}");
    }
    assert_eq!(fixture.serial(), serial(&old));
    assert!(matches!(fixture.events.take()[..], [Event::Failed { source: Source::Files, .. }]));

    fs::write(fixture.path().join("tls.key"), &new.key).unwrap();
    fixture.watcher.poll().unwrap();
    assert_eq!(fixture.serial(), serial(&new));
    assert!(matches!(fixture.events.take()[..], [Event::Recovered { .. }, Event::Loaded { .. }]));
}

#[test]
fn loads_files_that_were_deleted_and_created_again() {
    let mut fixture = Fixture::new();
    let (old, new) = (leaf(), leaf());
    write(fixture.path(), &old);
    fixture.watcher.poll().unwrap();
    fixture.events.take();

    fs::remove_file(fixture.path().join("tls.crt")).unwrap();
    fs::remove_file(fixture.path().join("tls.key")).unwrap();
    let error = fixture.watcher.poll().unwrap_err();
    assert!(error.to_string().contains("tls.crt can't be read"), "{error}");
    assert_eq!(fixture.serial(), serial(&old));

    write(fixture.path(), &old);
    fixture.watcher.poll().unwrap();
    assert!(matches!(fixture.events.take()[..], [Event::Failed { .. }, Event::Recovered { .. }]));

    fs::remove_file(fixture.path().join("tls.crt")).unwrap();
    fixture.watcher.poll().unwrap_err();
    write(fixture.path(), &new);
    fixture.watcher.poll().unwrap();
    assert_eq!(fixture.serial(), serial(&new));
}

#[test]
fn does_not_report_a_restored_pair_as_loaded() {
    let mut fixture = Fixture::new();
    let old = leaf();
    write(fixture.path(), &old);
    fixture.watcher.poll().unwrap();
    fixture.events.take();
    fs::write(fixture.path().join("tls.key"), leaf().key).unwrap();
    fixture.watcher.poll().unwrap_err();
    write(fixture.path(), &old);
    fixture.watcher.poll().unwrap();
    assert!(matches!(fixture.events.take()[..], [Event::Failed { .. }, Event::Recovered { .. }]));
}

#[test]
fn an_expired_pair_at_start_is_an_error() {
    let mut fixture = Fixture::new();
    write(fixture.path(), &leaf_until(DAY));
    fixture.clock.set(start() + 2 * DAY);
    let error = fixture.watcher.poll().unwrap_err().to_string();
    assert!(error.contains("expired at") && error.contains("renew it"), "{error}");
    assert!(fixture.resolver.current().is_none());
}

#[test]
fn reports_a_pair_that_expires_in_use_and_loads_the_next_one() {
    let mut fixture = Fixture::new();
    write(fixture.path(), &leaf_until(DAY));
    fixture.watcher.poll().unwrap();
    fixture.events.take();
    fixture.clock.set(start() + 2 * DAY);
    fixture.watcher.poll().unwrap_err();
    fixture.watcher.poll().unwrap_err();
    assert!(matches!(fixture.events.take()[..], [Event::Failed { .. }]));
    assert!(fixture.resolver.current().is_some(), "an expired pair is served rather than none");

    let next = leaf_until(30 * DAY);
    write(fixture.path(), &next);
    fixture.watcher.poll().unwrap();
    assert_eq!(fixture.serial(), serial(&next));
}

#[test]
fn reports_once_that_a_pair_expires_soon() {
    let mut fixture = Fixture::new();
    write(fixture.path(), &leaf_until(90 * DAY));
    fixture.watcher.poll().unwrap();
    fixture.clock.set(start() + 74 * DAY);
    fixture.watcher.poll().unwrap();
    fixture.events.take();
    fixture.clock.set(start() + 76 * DAY);
    fixture.watcher.poll().unwrap();
    fixture.watcher.poll().unwrap();
    let reported = fixture.events.take();
    assert!(matches!(reported[..], [Event::ExpiresSoon { source: Source::Files, .. }]), "{reported:?}");
    assert!(
        reported[0].is_failure() && reported[0].to_string().contains("check what renews it"),
        "{}",
        reported[0]
    );

    // The next pair expires soon as well.
    write(fixture.path(), &leaf_until(77 * DAY));
    fixture.watcher.poll().unwrap();
    assert!(matches!(fixture.events.take()[..], [Event::Loaded { .. }, Event::ExpiresSoon { .. }]));
}

#[test]
fn a_new_certificate_with_the_old_key_is_not_used() {
    let mut fixture = Fixture::new();
    let (old, newer, newest) = (leaf(), leaf(), leaf());
    kubelet_swap(fixture.path(), "..1", &old);
    fixture.watcher.poll().unwrap();
    for (generation, new) in [("..2", &newer), ("..3", &newest)] {
        let half = IssuedCertificate { certificate: new.certificate.clone(), key: old.key.clone() };
        kubelet_swap(fixture.path(), generation, &half);
        fixture.watcher.poll().unwrap_err();
        assert_eq!(fixture.serial(), serial(&old));
    }
    // The volume disappears and is mounted again.
    fs::remove_file(fixture.path().join("..data")).unwrap();
    fixture.watcher.poll().unwrap_err();
    assert_eq!(fixture.serial(), serial(&old));
    for file in ["tls.crt", "tls.key"] {
        fs::remove_file(fixture.path().join(file)).unwrap();
    }
    kubelet_swap(fixture.path(), "..4", &newest);
    fixture.watcher.poll().unwrap();
    assert_eq!(fixture.serial(), serial(&newest));
    fixture.watcher.poll().unwrap();
    assert!(matches!(fixture.events.take()[..], [.., Event::Recovered { .. }, Event::Loaded { .. }]));
}

/// A key file that is a pipe: a read of it waits for the test, which changes the certificate meanwhile. `serve` takes
/// the number of earlier reads and returns the key.
fn key_from_pipe(
    directory: &Path,
    reads: usize,
    serve: impl Fn(usize) -> String + Send + 'static,
) -> JoinHandle<()> {
    let path = directory.join("tls.key");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    std::thread::spawn(move || {
        for read in 0..reads {
            // Opening waits for the reader, which has read the certificate by then.
            let mut pipe = fs::OpenOptions::new().write(true).open(&path).unwrap();
            let answer = serve(read);
            // Each read uses a new pipe.
            let next = path.with_extension("next");
            assert!(Command::new("mkfifo").arg(&next).status().unwrap().success());
            fs::rename(&next, &path).unwrap();
            pipe.write_all(answer.as_bytes()).unwrap();
        }
    })
}

fn put(directory: &Path, certificate: &str) {
    fs::write(directory.join("new"), certificate).unwrap();
    fs::rename(directory.join("new"), directory.join("tls.crt")).unwrap();
}

#[test]
fn reads_again_when_the_files_change_between_the_reads() {
    let mut fixture = Fixture::new();
    let (old, new) = (leaf(), leaf());
    put(fixture.path(), &old.certificate);
    let (directory, pair) = (fixture.path().to_owned(), (new.certificate.clone(), new.key.clone()));
    let writer = key_from_pipe(fixture.path(), 2, move |read| {
        if read == 0 {
            put(&directory, &pair.0);
        }
        pair.1.clone()
    });
    fixture.watcher.poll().unwrap();
    writer.join().unwrap();
    assert_eq!(fixture.serial(), serial(&new));
    assert!(matches!(fixture.events.take()[..], [Event::Loaded { .. }]), "no mismatch is reported");
}

#[test]
fn never_combines_a_certificate_with_the_key_of_another() {
    let mut fixture = Fixture::new();
    let generations: Vec<IssuedCertificate> = (0..5).map(|_| leaf()).collect();
    put(fixture.path(), &generations[0].certificate);
    let directory = fixture.path().to_owned();
    let pairs: Vec<_> = generations.iter().map(|leaf| (leaf.certificate.clone(), leaf.key.clone())).collect();
    // The key is always one generation older than the certificate after the read.
    let writer = key_from_pipe(fixture.path(), 3, move |read| {
        put(&directory, &pairs[read + 1].0);
        pairs[read.min(1)].1.clone()
    });
    let error = fixture.watcher.poll().unwrap_err();
    writer.join().unwrap();
    assert!(error.to_string().contains("is not the key of the first certificate in"), "{error}");
    assert!(fixture.resolver.current().is_none());

    fs::remove_file(fixture.path().join("tls.key")).unwrap();
    write(fixture.path(), &generations[4]);
    fixture.watcher.poll().unwrap();
    assert_eq!(fixture.serial(), serial(&generations[4]));
}

#[tokio::test(start_paused = true)]
async fn the_loop_reads_at_the_interval_and_continues_after_failures() {
    let Fixture { directory, events, resolver, watcher, .. } = Fixture::new();
    let running = tokio::spawn(watcher.run(Duration::from_secs(5)));
    until("failure reported", || events.count(Event::is_failure) == 1).await;

    let waiting = tokio::spawn({
        let resolver = Arc::clone(&resolver);
        async move {
            resolver.ready().await;
            resolver.current().unwrap().leaf.serial.clone()
        }
    });
    let first = leaf();
    write(directory.path(), &first);
    assert_eq!(waiting.await.unwrap(), serial(&first));

    let second = leaf();
    fs::write(directory.path().join("tls.key"), &second.key).unwrap();
    until("mismatch reported", || events.count(Event::is_failure) == 2).await;
    fs::write(directory.path().join("tls.crt"), &second.certificate).unwrap();
    until("second pair in use", || {
        resolver.current().is_some_and(|pair| pair.leaf.serial == serial(&second))
    })
    .await;
    assert!(!running.is_finished());
    running.abort();
}
