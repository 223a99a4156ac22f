use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use swansong_certs::{
    AUTHORITY_VALIDITY, Anchor, Authority, ClientRoots, Pair, PemPair, Resolver, TlsOptions, Trust, bundle,
    server_config,
};

/// Between certificate and key in an input.
const SEPARATOR: &[u8] = b"====\n";

/// Any bytes as a certificate file and a key file, as authorities of clients, and as a `caBundle`: an error says
/// something and quotes no key, a pair has a certificate, and a bundle that was put in order stays as it is.
pub fn pem(input: &[u8]) {
    let at = input.windows(SEPARATOR.len()).position(|window| window == SEPARATOR);
    let (certificate, key) = at.map_or((input, input), |at| (&input[..at], &input[at + SEPARATOR.len()..]));
    let now = now();
    let names = PemPair { certificate_name: "tls.crt", certificate, key_name: "tls.key", key };
    match Pair::from_pem(&names, now) {
        Ok(pair) => assert!(!pair.chain().is_empty() && !pair.serial().is_empty()),
        Err(error) => is_told(&error.to_string(), key),
    }
    if let Err(error) = Authority::from_pem(&names, now) {
        is_told(&error.to_string(), key);
    }

    let options = TlsOptions {
        client_roots: Some(ClientRoots { name: "ca.crt".to_owned(), pem: certificate.to_vec() }),
        ..TlsOptions::default()
    };
    if let Err(error) = server_config(Resolver::new(), &options) {
        is_told(&error.to_string(), key);
    }

    let trust = trust();
    bundle::view([certificate], trust);
    if let Some(updated) = bundle::updated(certificate, trust, now) {
        assert_eq!(bundle::updated(updated.as_bytes(), trust, now), None);
    }
}

/// A moment in the lives of the certificates among the seeds.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(500_000)
}

/// Whether an error says something, without a line of the key in it.
fn is_told(error: &str, key: &[u8]) {
    assert!(!error.is_empty());
    let lines = key.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    for line in lines.filter(|line| line.len() >= 48) {
        assert!(!error.contains(line), "{error}");
    }
}

fn trust() -> &'static Trust {
    static TRUST: OnceLock<Arc<Trust>> = OnceLock::new();
    TRUST.get_or_init(|| {
        let issued = Authority::create(now(), AUTHORITY_VALIDITY).expect("an authority");
        let current = Anchor::from_pem("ca.crt", issued.certificate.as_bytes(), now()).expect("sound");
        Arc::new(Trust { current, next: None, previous: Vec::new(), retired: Vec::new() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_sound_pairs() {
        for seed in ["sec1", "pkcs8", "pkcs1-chain"] {
            let path = format!("{}/../fuzz/seeds/pem/{seed}", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).expect("a seed");
            let (certificate, key) = text.split_once("====\n").expect("two parts");
            let pair = Pair::from_pem(
                &PemPair {
                    certificate_name: "tls.crt",
                    certificate: certificate.as_bytes(),
                    key_name: "tls.key",
                    key: key.as_bytes(),
                },
                now(),
            );
            assert!(pair.is_ok(), "{seed}: {:?}", pair.err());
        }
    }
}
