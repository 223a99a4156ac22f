use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use swansong_certs::{Certificate, CertificateAuthority, Pair, PemPair, TrustedCas, bundle, client_cas};

/// Between certificate and key in an input.
const SEPARATOR: &[u8] = b"====\n";

/// Reads any bytes as a pair, as client CAs and as a `caBundle`: errors have a text without the key, a pair has a
/// certificate, and an updated bundle needs no further update.
pub fn pem(input: &[u8]) {
    let at = input.windows(SEPARATOR.len()).position(|window| window == SEPARATOR);
    let (certificate, key) = at.map_or((input, input), |at| (&input[..at], &input[at + SEPARATOR.len()..]));
    let now = now();
    let pem = PemPair { certificate: certificate.to_vec(), key: key.to_vec() };
    match Pair::from_pem(&pem, "tls.crt", "tls.key", now) {
        Ok(pair) => assert!(!pair.certified.cert.is_empty() && !pair.leaf.serial.is_empty()),
        Err(error) => assert_has_no_key(&error.to_string(), key),
    }
    if let Err(error) = CertificateAuthority::from_pem(&pem, "tls.crt", "tls.key", now) {
        assert_has_no_key(&error.to_string(), key);
    }

    if let Err(error) = client_cas("ca.crt", certificate) {
        assert_has_no_key(&error.to_string(), key);
    }

    let cas = trusted_cas();
    bundle::observe([certificate], cas);
    if let Some(updated) = bundle::updated(certificate, cas, now) {
        assert_eq!(bundle::updated(updated.as_bytes(), cas, now), None);
    }
}

/// A time at which the certificates of the seeds are valid.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(500_000)
}

/// An error has a text without a line of the key.
fn assert_has_no_key(error: &str, key: &[u8]) {
    assert!(!error.is_empty());
    let lines = key.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    for line in lines.filter(|line| line.len() >= 48) {
        assert!(!error.contains(line), "{error}");
    }
}

fn trusted_cas() -> &'static TrustedCas {
    static CAS: OnceLock<Arc<TrustedCas>> = OnceLock::new();
    CAS.get_or_init(|| {
        let issued = CertificateAuthority::create(now(), Duration::from_hours(24)).expect("a CA");
        let current = Certificate::ca_from_pem("ca.crt", &issued.certificate, now()).expect("valid");
        Arc::new(TrustedCas { current, next: None, previous: Vec::new(), retired: Vec::new() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_valid_pairs() {
        for seed in ["sec1", "pkcs8", "pkcs1-chain"] {
            let path = format!("{}/../fuzz/seeds/pem/{seed}", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).expect("a seed");
            let (certificate, key) = text.split_once("====\n").expect("two parts");
            let pem = PemPair { certificate: certificate.into(), key: key.into() };
            let pair = Pair::from_pem(&pem, "tls.crt", "tls.key", now());
            assert!(pair.is_ok(), "{seed}: {:?}", pair.err());
        }
    }
}
