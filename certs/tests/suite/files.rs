//! Pairs in files, changed in every way that files are changed.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use swansong_certs::{Event, FilePair, FileWatcher, FilesError, Issued, PairError, Resolver, Source};
use tempfile::TempDir;

use crate::support::{DAY, Hands, Recorder, leaf, leaf_until, pair_of, start, until};

struct Bench {
    directory: TempDir,
    clock: Hands,
    events: Recorder,
    resolver: Arc<Resolver>,
    watcher: FileWatcher,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = Hands::new();
        let events = Recorder::default();
        let resolver = Resolver::new();
        let watcher = FileWatcher::new(
            FilePair::in_directory(directory.path()),
            Arc::clone(&resolver),
            Arc::new(clock.clone()),
            Arc::new(events.clone()),
        );
        Self { directory, clock, events, resolver, watcher }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn serial(&self) -> String {
        self.resolver.current().unwrap().serial().to_owned()
    }
}

fn serial(leaf: &Issued) -> String {
    let pair = pair_of(leaf.certificate.as_bytes(), leaf.key.as_bytes(), start()).unwrap();
    pair.serial().to_owned()
}

fn write(directory: &Path, leaf: &Issued) {
    fs::write(directory.join("tls.crt"), &leaf.certificate).unwrap();
    fs::write(directory.join("tls.key"), &leaf.key).unwrap();
}

fn is_loaded(event: &Event) -> bool {
    matches!(event, Event::Loaded { .. })
}

/// What the kubelet does: the files are links through `..data`, which is swapped whole by a rename.
fn kubelet_swap(volume: &Path, generation: &str, leaf: &Issued) {
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

/// B55.
#[test]
fn a_kubelet_swap_is_seen_twice() {
    let mut bench = Bench::new();
    for generation in ["..2026_1", "..2026_2", "..2026_3"] {
        let leaf = leaf();
        kubelet_swap(bench.path(), generation, &leaf);
        bench.watcher.poll().unwrap();
        assert_eq!(bench.serial(), serial(&leaf), "{generation}");
    }
    assert_eq!(bench.events.seen(is_loaded), 3);
    bench.watcher.poll().unwrap();
    assert_eq!(bench.events.take().len(), 3, "a look that finds nothing new says nothing");
}

/// B56, as are the swaps between reads below.
#[test]
fn a_half_written_pair_leaves_the_old_one_in_use_and_is_told_once() {
    let mut bench = Bench::new();
    let (old, new) = (leaf(), leaf());
    write(bench.path(), &old);
    bench.watcher.poll().unwrap();
    bench.events.take();

    fs::write(bench.path().join("tls.crt"), &new.certificate).unwrap();
    for _ in 0..3 {
        let error = bench.watcher.poll().unwrap_err();
        assert!(matches!(error, FilesError::Pair(PairError::KeyMismatch { .. })), "{error}");
        assert!(error.to_string().contains(&bench.path().join("tls.key").display().to_string()), "{error}");
    }
    assert_eq!(bench.serial(), serial(&old));
    assert!(matches!(bench.events.take()[..], [Event::Failed { source: Source::Files, .. }]));

    fs::write(bench.path().join("tls.key"), &new.key).unwrap();
    bench.watcher.poll().unwrap();
    assert_eq!(bench.serial(), serial(&new));
    assert!(matches!(bench.events.take()[..], [Event::Recovered { .. }, Event::Loaded { .. }]));
}

/// B56.
#[test]
fn files_deleted_and_made_anew_are_picked_up() {
    let mut bench = Bench::new();
    let (old, new) = (leaf(), leaf());
    write(bench.path(), &old);
    bench.watcher.poll().unwrap();
    bench.events.take();

    fs::remove_file(bench.path().join("tls.crt")).unwrap();
    fs::remove_file(bench.path().join("tls.key")).unwrap();
    let error = bench.watcher.poll().unwrap_err();
    assert!(error.to_string().contains("tls.crt can't be read"), "{error}");
    assert_eq!(bench.serial(), serial(&old));

    write(bench.path(), &old);
    bench.watcher.poll().unwrap();
    assert!(matches!(bench.events.take()[..], [Event::Failed { .. }, Event::Recovered { .. }]));

    fs::remove_file(bench.path().join("tls.crt")).unwrap();
    bench.watcher.poll().unwrap_err();
    write(bench.path(), &new);
    bench.watcher.poll().unwrap();
    assert_eq!(bench.serial(), serial(&new));
}

#[test]
fn a_pair_back_to_the_one_in_use_is_no_news() {
    let mut bench = Bench::new();
    let old = leaf();
    write(bench.path(), &old);
    bench.watcher.poll().unwrap();
    bench.events.take();
    fs::write(bench.path().join("tls.key"), leaf().key).unwrap();
    bench.watcher.poll().unwrap_err();
    write(bench.path(), &old);
    bench.watcher.poll().unwrap();
    assert!(matches!(bench.events.take()[..], [Event::Failed { .. }, Event::Recovered { .. }]));
}

/// B59.
#[test]
fn an_expired_pair_at_start_is_an_error_and_nothing_is_served() {
    let mut bench = Bench::new();
    write(bench.path(), &leaf_until(DAY));
    bench.clock.set(start() + 2 * DAY);
    let error = bench.watcher.poll().unwrap_err().to_string();
    assert!(error.contains("expired at") && error.contains("renew it"), "{error}");
    assert!(bench.resolver.current().is_none());
}

#[test]
fn a_pair_that_expires_in_use_is_told_and_its_successor_taken() {
    let mut bench = Bench::new();
    write(bench.path(), &leaf_until(DAY));
    bench.watcher.poll().unwrap();
    bench.events.take();
    bench.clock.set(start() + 2 * DAY);
    bench.watcher.poll().unwrap_err();
    bench.watcher.poll().unwrap_err();
    assert!(matches!(bench.events.take()[..], [Event::Failed { .. }]));
    assert!(bench.resolver.current().is_some(), "a worse pair is still better than none");

    let next = leaf_until(30 * DAY);
    write(bench.path(), &next);
    bench.watcher.poll().unwrap();
    assert_eq!(bench.serial(), serial(&next));
}

/// B59.
#[test]
fn a_pair_that_nobody_renews_is_told_once_before_its_end() {
    let mut bench = Bench::new();
    write(bench.path(), &leaf_until(90 * DAY));
    bench.watcher.poll().unwrap();
    bench.clock.set(start() + 74 * DAY);
    bench.watcher.poll().unwrap();
    bench.events.take();
    bench.clock.set(start() + 76 * DAY);
    bench.watcher.poll().unwrap();
    bench.watcher.poll().unwrap();
    let told = bench.events.take();
    assert!(matches!(told[..], [Event::ExpiresSoon { source: Source::Files, .. }]), "{told:?}");
    assert!(told[0].is_failure() && told[0].to_string().contains("see why it isn't renewed"), "{}", told[0]);

    // A successor that is at its end itself is told as well.
    write(bench.path(), &leaf_until(77 * DAY));
    bench.watcher.poll().unwrap();
    assert!(matches!(bench.events.take()[..], [Event::Loaded { .. }, Event::ExpiresSoon { .. }]));
}

/// B56.
#[test]
fn a_new_certificate_with_the_old_key_waits_for_its_key_over_several_swaps() {
    let mut bench = Bench::new();
    let (old, newer, newest) = (leaf(), leaf(), leaf());
    kubelet_swap(bench.path(), "..1", &old);
    bench.watcher.poll().unwrap();
    for (generation, new) in [("..2", &newer), ("..3", &newest)] {
        let half = Issued { certificate: new.certificate.clone(), key: old.key.clone() };
        kubelet_swap(bench.path(), generation, &half);
        bench.watcher.poll().unwrap_err();
        assert_eq!(bench.serial(), serial(&old));
    }
    // The volume goes altogether and comes back.
    fs::remove_file(bench.path().join("..data")).unwrap();
    bench.watcher.poll().unwrap_err();
    assert_eq!(bench.serial(), serial(&old));
    for file in ["tls.crt", "tls.key"] {
        fs::remove_file(bench.path().join(file)).unwrap();
    }
    kubelet_swap(bench.path(), "..4", &newest);
    bench.watcher.poll().unwrap();
    assert_eq!(bench.serial(), serial(&newest));
    bench.watcher.poll().unwrap();
    assert!(matches!(bench.events.take()[..], [.., Event::Recovered { .. }, Event::Loaded { .. }]));
}

/// A key file that is a pipe: reading it waits for the test, which changes the certificate meanwhile. `serve` is told
/// how many reads went before, changes what it likes and returns the key to answer with.
fn key_behind_a_pipe(
    directory: &Path,
    reads: usize,
    serve: impl Fn(usize) -> String + Send + 'static,
) -> JoinHandle<()> {
    let path = directory.join("tls.key");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    std::thread::spawn(move || {
        for read in 0..reads {
            // Opening waits for the reader, who has read the certificate by then.
            let mut pipe = fs::OpenOptions::new().write(true).open(&path).unwrap();
            let answer = serve(read);
            // A reader must not meet the pipe of the read before.
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
fn a_swap_between_the_reads_of_certificate_and_key_is_noticed() {
    let mut bench = Bench::new();
    let (old, new) = (leaf(), leaf());
    put(bench.path(), &old.certificate);
    let (directory, pair) = (bench.path().to_owned(), (new.certificate.clone(), new.key.clone()));
    let writer = key_behind_a_pipe(bench.path(), 2, move |read| {
        if read == 0 {
            put(&directory, &pair.0);
        }
        pair.1.clone()
    });
    bench.watcher.poll().unwrap();
    writer.join().unwrap();
    assert_eq!(bench.serial(), serial(&new));
    assert!(matches!(bench.events.take()[..], [Event::Loaded { .. }]), "no mismatch was told");
}

#[test]
fn a_certificate_that_changes_at_every_read_is_taken_only_with_its_key() {
    let mut bench = Bench::new();
    let generations: Vec<Issued> = (0..5).map(|_| leaf()).collect();
    put(bench.path(), &generations[0].certificate);
    let directory = bench.path().to_owned();
    let pairs: Vec<_> = generations.iter().map(|leaf| (leaf.certificate.clone(), leaf.key.clone())).collect();
    // The key is always one generation behind the certificate that is there after it was read.
    let writer = key_behind_a_pipe(bench.path(), 3, move |read| {
        put(&directory, &pairs[read + 1].0);
        pairs[read.min(1)].1.clone()
    });
    let error = bench.watcher.poll().unwrap_err();
    writer.join().unwrap();
    assert!(matches!(error, FilesError::Pair(PairError::KeyMismatch { .. })), "{error}");
    assert!(bench.resolver.current().is_none());

    fs::remove_file(bench.path().join("tls.key")).unwrap();
    write(bench.path(), &generations[4]);
    bench.watcher.poll().unwrap();
    assert_eq!(bench.serial(), serial(&generations[4]));
}

#[tokio::test(start_paused = true)]
async fn the_loop_looks_at_the_interval_and_survives_everything() {
    let Bench { directory, events, resolver, watcher, .. } = Bench::new();
    let running = tokio::spawn(watcher.run(Duration::from_secs(5)));
    until("failure told", || events.seen(Event::is_failure) == 1).await;

    let waiting = tokio::spawn({
        let resolver = Arc::clone(&resolver);
        async move { resolver.ready().await.serial().to_owned() }
    });
    let first = leaf();
    write(directory.path(), &first);
    assert_eq!(waiting.await.unwrap(), serial(&first));

    let second = leaf();
    fs::write(directory.path().join("tls.key"), &second.key).unwrap();
    until("mismatch told", || events.seen(Event::is_failure) == 2).await;
    fs::write(directory.path().join("tls.crt"), &second.certificate).unwrap();
    until("second pair in use", || resolver.current().is_some_and(|pair| pair.serial() == serial(&second)))
        .await;
    assert!(!running.is_finished());
    running.abort();
}
