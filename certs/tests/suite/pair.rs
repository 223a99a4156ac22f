//! Reading pairs: chains, key formats, errors.

use rcgen::{CertificateParams, KeyPair};

use crate::support::{DAY, DNS, IssuedCertificate, ca_of, create_ca, leaf, leaf_until, pair_of, start};

const RSA_PKCS1: &str = include_str!("data/rsa-pkcs1.pem");
const RSA_PKCS8: &str = include_str!("data/rsa-pkcs8.pem");
const EC_SEC1: &str = include_str!("data/ec-sec1.pem");
const EC_PKCS8: &str = include_str!("data/ec-pkcs8.pem");

fn certificate_for(pkcs8: &str) -> String {
    let key = KeyPair::from_pem(pkcs8).unwrap();
    CertificateParams::new([DNS.to_owned()]).unwrap().self_signed(&key).unwrap().pem()
}

#[test]
fn reads_keys_in_all_formats() {
    let rows = [
        ("PKCS#8 RSA", RSA_PKCS8, RSA_PKCS8),
        ("PKCS#1", RSA_PKCS8, RSA_PKCS1),
        ("PKCS#8 EC", EC_PKCS8, EC_PKCS8),
        ("SEC1", EC_PKCS8, EC_SEC1),
    ];
    for (row, made_with, key) in rows {
        let certificate = certificate_for(made_with);
        let pair = pair_of(certificate.as_bytes(), key.as_bytes(), start());
        assert!(pair.is_ok(), "{row}: {pair:?}");
    }
}

#[test]
fn keeps_the_order_of_a_chain() {
    let made = create_ca(start(), 100 * DAY);
    let leaf: IssuedCertificate =
        ca_of(&made, start()).issue(&[DNS.to_owned()], start(), DAY).unwrap().into();
    let chain = format!("{}{}", leaf.certificate, made.certificate);
    let pair = pair_of(chain.as_bytes(), leaf.key.as_bytes(), start()).unwrap();
    assert_eq!(pair.certified.cert.len(), 2);

    let wrong_order = format!("{}{}", made.certificate, leaf.certificate);
    let error = pair_of(wrong_order.as_bytes(), leaf.key.as_bytes(), start()).unwrap_err();
    assert!(
        error.to_string().contains("tls.key is not the key of the first certificate in tls.crt"),
        "{error}"
    );
    assert!(error.to_string().contains("put the server's own certificate first"), "{error}");
}

#[test]
fn ignores_text_around_pem_sections() {
    let leaf = leaf();
    let certificate = format!("subject=/CN=x\r\n\r\n{}\n# end\n", leaf.certificate.replace('\n', "\r\n"));
    let key = format!("Bag Attributes\n{}", leaf.key);
    pair_of(certificate.as_bytes(), key.as_bytes(), start()).unwrap();
}

#[test]
fn reports_serial_validity_and_names() {
    let leaf = leaf_until(90 * DAY);
    let pair = pair_of(leaf.certificate.as_bytes(), leaf.key.as_bytes(), start()).unwrap();
    assert_eq!(pair.leaf.not_after, start() + 90 * DAY);
    assert_eq!(pair.leaf.not_before, start() - DAY / 24);
    assert!(pair.leaf.serial.split(':').all(|octet| octet.len() == 2), "{}", pair.leaf.serial);
    assert!(pair.covers(DNS));
    assert!(!pair.covers("other.swansong.svc"));
    assert!(!pair.covers("not a name"));
}

#[test]
fn errors_name_the_file_and_what_to_do() {
    let leaf = leaf();
    let other = self::leaf();
    let certificate = leaf.certificate.as_bytes();
    let key = leaf.key.as_bytes();
    let damaged = &certificate[..certificate.len() / 2];
    let weak = leaf.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let rows: [(&[u8], &[u8], &str, &str); 8] = [
        (b"", key, "tls.crt", "put the server's certificate there"),
        (key, key, "tls.crt", "put the server's certificate there"),
        (damaged, key, "tls.crt, certificate 1", "END line is missing"),
        (certificate, b"", "tls.key", "put the key there"),
        (certificate, certificate, "tls.key", "put the key there"),
        (certificate, &key[..key.len() / 2], "tls.key", "write it again"),
        (certificate, weak.as_bytes(), "tls.key", "without a passphrase"),
        (certificate, other.key.as_bytes(), "tls.key", "replace both together"),
    ];
    for (certificate, key, part, remedy) in rows {
        let error = pair_of(certificate, key, start()).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains(remedy), "{error}");
    }
}

#[test]
fn checks_validity_at_the_given_time() {
    let leaf = leaf_until(90 * DAY);
    let at = |now| pair_of(leaf.certificate.as_bytes(), leaf.key.as_bytes(), now);
    at(start() + 90 * DAY).unwrap();
    let late = at(start() + 91 * DAY).unwrap_err().to_string();
    assert!(late.contains("expired at 2027-02-1") && late.contains("renew it"), "{late}");
    let early = at(start() - DAY).unwrap_err().to_string();
    assert!(early.contains("check this machine's clock"), "{early}");
}

#[test]
fn errors_do_not_quote_a_damaged_key() {
    let leaf = leaf();
    let secret = leaf.key.lines().nth(1).unwrap().to_owned();
    let damaged = leaf.key.replace("-----BEGIN PRIVATE KEY-----", &format!("-----BEGIN {secret}"));
    let error = pair_of(leaf.certificate.as_bytes(), damaged.as_bytes(), start()).unwrap_err();
    assert!(!format!("{error} {error:?}").contains(&secret), "{error:?}");
}
