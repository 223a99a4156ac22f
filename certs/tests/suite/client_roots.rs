//! Who is let in, by a file that changes while the server runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;

use rustls::{HandshakeKind, version};
use swansong_certs::{
    ClientRootsError, ClientRootsWatcher, Event, Issued, MinimumTls, Resolver, Source, TlsOptions,
    server_config_with_clients,
};

use crate::handshake::{client, client_identity, connect, echo, pair, ping, pki};
use crate::support::{Recorder, until};

fn both(one: &Issued, two: &Issued) -> String {
    format!("{}{}", one.certificate, two.certificate)
}

#[tokio::test]
async fn roots_change_under_a_running_server_and_tickets_end_with_them() {
    let (_, authority) = pki();
    let [first, second, third] = [(); 3].map(|()| pki().0);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("client-ca.crt");
    fs::write(&path, both(&first, &second)).unwrap();
    let events = Recorder::default();
    let mut watcher = ClientRootsWatcher::open(&path, Arc::new(events.clone())).unwrap();
    assert_eq!(events.take(), [Event::ClientRootsLoaded { authorities: 2 }]);

    let resolver = Resolver::new();
    resolver.publish(pair(&authority));
    for (minimum, version) in [(MinimumTls::Tls13, &version::TLS13), (MinimumTls::Tls12, &version::TLS12)] {
        fs::write(&path, both(&first, &second)).unwrap();
        watcher.poll().unwrap();
        let options = TlsOptions { minimum, ..TlsOptions::default() };
        let config = server_config_with_clients(Arc::clone(&resolver), &options, watcher.trust()).unwrap();
        let address = echo(config).await;
        let connector =
            |ca: Option<&Issued>| client(&authority, &[version], ca.map(client_identity).as_ref());
        let welcome = async |connector: &tokio_rustls::TlsConnector| {
            let outcome = async { ping(&mut connect(connector, address).await?).await };
            tokio::time::timeout(Duration::from_secs(10), outcome).await.unwrap().is_ok()
        };
        let [one, two, three, nobody] = [Some(&first), Some(&second), Some(&third), None].map(connector);
        assert!(welcome(&one).await && welcome(&two).await);
        assert!(!welcome(&three).await && !welcome(&nobody).await);
        let mut open = connect(&one, address).await.unwrap();
        ping(&mut open).await.unwrap();
        assert_eq!(open.get_ref().1.handshake_kind(), Some(HandshakeKind::Resumed));

        fs::write(&path, both(&second, &third)).unwrap();
        watcher.poll().unwrap();
        assert!(!welcome(&one).await, "its ticket must not let it in");
        assert!(welcome(&two).await && welcome(&three).await);
        ping(&mut open).await.unwrap();
    }
}

#[test]
fn a_bad_file_leaves_the_last_good_roots_and_is_told_once() {
    let (first, second) = (pki().0, pki().0);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("client-ca.crt");
    let events = Recorder::default();
    let error = ClientRootsWatcher::open(&path, Arc::new(events.clone())).err().unwrap();
    assert!(matches!(error, ClientRootsError::Read { .. }), "{error}");
    assert!(error.to_string().contains("mount it"), "{error}");

    fs::write(&path, &first.certificate).unwrap();
    let mut watcher = ClientRootsWatcher::open(&path, Arc::new(events.clone())).unwrap();
    events.take();
    let torn = &second.certificate[..second.certificate.len() / 2];
    for bad in
        [String::new(), torn.to_owned(), both(&first, &second).replace("MII", "MIJ"), second.key.clone()]
    {
        fs::write(&path, &bad).unwrap();
        watcher.poll().unwrap_err();
        let error = watcher.poll().unwrap_err().to_string();
        assert!(error.contains("client-ca.crt"), "{error}");
        assert!(!error.contains(second.key.lines().nth(1).unwrap()), "{error}");
    }
    fs::remove_file(&path).unwrap();
    watcher.poll().unwrap_err();
    fs::write(&path, &first.certificate).unwrap();
    watcher.poll().unwrap();
    watcher.poll().unwrap();
    let told = events.take();
    assert!(
        matches!(&told[..], [.., Event::Recovered { source: Source::ClientRoots }]),
        "the same roots are no news: {told:?}"
    );
    assert!((3..=5).contains(&(told.len() - 1)), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn the_loop_follows_the_kubelets_link() {
    let directory = tempfile::tempdir().unwrap();
    let volume = directory.path();
    let swap = |generation: &str, issued: &Issued| {
        fs::create_dir(volume.join(generation)).unwrap();
        fs::write(volume.join(generation).join("ca.crt"), &issued.certificate).unwrap();
        symlink(generation, volume.join("..data_tmp")).unwrap();
        fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    };
    swap("..1", &pki().0);
    symlink("..data/ca.crt", volume.join("ca.crt")).unwrap();
    let events = Recorder::default();
    let watcher = ClientRootsWatcher::open(volume.join("ca.crt"), Arc::new(events.clone())).unwrap();
    let running = tokio::spawn(watcher.run(Duration::from_secs(5)));
    for (count, generation) in [(2, "..2"), (3, "..3")] {
        swap(generation, &pki().0);
        until("loaded", || {
            events.seen(|event| matches!(event, Event::ClientRootsLoaded { authorities: 1 })) == count
        })
        .await;
    }
    assert!(!running.is_finished());
    running.abort();
}
