//! Verification of clients by a file of CAs that changes while the server runs.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ALL_VERSIONS, HandshakeKind, version};
use swansong_certs::{ClientCaWatcher, Event, Resolver, Source};

use crate::handshake::{client, client_identity, connect, echo, pair, ping, pki};
use crate::support::{IssuedCertificate, Recorder, until};

fn both(one: &IssuedCertificate, two: &IssuedCertificate) -> String {
    format!("{}{}", one.certificate, two.certificate)
}

#[tokio::test]
async fn new_client_cas_apply_to_a_running_server_and_invalidate_session_tickets() {
    let (_, ca) = pki();
    let [first, second, third] = [(); 3].map(|()| pki().0);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("client-ca.crt");
    fs::write(&path, both(&first, &second)).unwrap();
    let events = Recorder::default();
    let resolver = Resolver::new();
    resolver.publish(pair(&ca));
    for (versions, version) in [(&[&version::TLS13][..], &version::TLS13), (ALL_VERSIONS, &version::TLS12)] {
        fs::write(&path, both(&first, &second)).unwrap();
        let mut watcher =
            ClientCaWatcher::open(&path, Arc::clone(&resolver), versions, events.observer()).unwrap();
        assert_eq!(events.take(), [Event::ClientCaLoaded { cas: 2 }]);
        let address = echo(Arc::clone(watcher.config())).await;
        let connector = |client_ca: Option<&IssuedCertificate>| {
            client(&ca, &[version], client_ca.map(client_identity).as_ref())
        };
        let is_accepted = async |connector: &tokio_rustls::TlsConnector| {
            let outcome = async { ping(&mut connect(connector, address).await?).await };
            tokio::time::timeout(Duration::from_secs(10), outcome).await.unwrap().is_ok()
        };
        let [one, two, three, without] = [Some(&first), Some(&second), Some(&third), None].map(connector);
        assert!(is_accepted(&one).await && is_accepted(&two).await);
        assert!(!is_accepted(&three).await && !is_accepted(&without).await);
        let mut open = connect(&one, address).await.unwrap();
        ping(&mut open).await.unwrap();
        assert_eq!(open.get_ref().1.handshake_kind(), Some(HandshakeKind::Resumed));

        fs::write(&path, both(&second, &third)).unwrap();
        watcher.poll().unwrap();
        assert_eq!(events.take(), [Event::ClientCaLoaded { cas: 2 }]);
        assert!(!is_accepted(&one).await, "its session ticket is invalid");
        assert!(is_accepted(&two).await && is_accepted(&three).await);
        ping(&mut open).await.unwrap();
    }
}

#[test]
fn an_invalid_file_keeps_the_last_valid_cas_and_is_reported_once() {
    let (first, second) = (pki().0, pki().0);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("client-ca.crt");
    let events = Recorder::default();
    let error = ClientCaWatcher::open(&path, Resolver::new(), ALL_VERSIONS, events.observer()).err().unwrap();
    assert!(error.to_string().contains("client-ca.crt can't be read"), "{error}");
    assert!(error.to_string().contains("mount it"), "{error}");

    fs::write(&path, &first.certificate).unwrap();
    let mut watcher = ClientCaWatcher::open(&path, Resolver::new(), ALL_VERSIONS, events.observer()).unwrap();
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
    let reported = events.take();
    assert!(
        matches!(&reported[..], [.., Event::Recovered { source: Source::ClientCa }]),
        "the same CAs are not reported: {reported:?}"
    );
    assert!((3..=5).contains(&(reported.len() - 1)), "{reported:?}");
}

#[tokio::test(start_paused = true)]
async fn the_loop_follows_the_link_of_a_mounted_secret() {
    let directory = tempfile::tempdir().unwrap();
    let volume = directory.path();
    let swap = |generation: &str, issued: &IssuedCertificate| {
        fs::create_dir(volume.join(generation)).unwrap();
        fs::write(volume.join(generation).join("ca.crt"), &issued.certificate).unwrap();
        symlink(generation, volume.join("..data_tmp")).unwrap();
        fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    };
    swap("..1", &pki().0);
    symlink("..data/ca.crt", volume.join("ca.crt")).unwrap();
    let events = Recorder::default();
    let watcher =
        ClientCaWatcher::open(volume.join("ca.crt"), Resolver::new(), ALL_VERSIONS, events.observer())
            .unwrap();
    let running = tokio::spawn(watcher.run(Duration::from_secs(5)));
    for (count, generation) in [(2, "..2"), (3, "..3")] {
        swap(generation, &pki().0);
        until("loaded", || events.count(|event| matches!(event, Event::ClientCaLoaded { cas: 1 })) == count)
            .await;
    }
    assert!(!running.is_finished());
    running.abort();
}
