//! The certificate that the webhook serves, as the API server verifies it.

use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::finding::{Judged, Verdict};

/// How long before its end a certificate should have been renewed, in seconds.
const SOON: u64 = 24 * 60 * 60;

/// Whether `bundle` has the CA of `chain`, and whether that is for `name`. The certificate's own dates aren't judged.
pub(super) fn trust(bundle: &[u8], chain: &str, name: &str) -> Judged {
    let chain = parse(chain.as_bytes(), "the served certificate")?;
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(parse(bundle, "the caBundle")?);
    if added == 0 {
        return Err(Verdict::fail("the caBundle has no usable certificate"));
    }
    let (leaf, others) = chain.split_first().ok_or_else(|| Verdict::fail("no certificate is served"))?;
    let (from, until) = validity(leaf)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| Verdict::fail(format!("the caBundle can't be used: {error}")))?;
    let server = ServerName::try_from(name)
        .map_err(|error| Verdict::fail(format!("{name} can't be the name of a server: {error}")))?;
    let at = UnixTime::since_unix_epoch(Duration::from_secs(from.midpoint(until)));
    match verifier.verify_server_cert(leaf, others, &server, &[], at) {
        Ok(_) => Ok(Verdict::pass(format!("it verifies the certificates that are served for {name}"))),
        Err(error) => {
            Err(Verdict::fail(format!("it doesn't verify the certificate that is served: {error}")))
        }
    }
}

/// Whether the first certificate of `chain` is valid at `now`, in milliseconds since 1970.
pub(super) fn dates(chain: &str, now: u64) -> Judged {
    let chain = parse(chain.as_bytes(), "the served certificate")?;
    let leaf = chain.first().ok_or_else(|| Verdict::fail("no certificate is served"))?;
    let (from, until) = validity(leaf)?;
    let now = now / 1000;
    Ok(if now < from {
        Verdict::fail("the served certificate isn't valid yet: compare the clocks")
    } else if until <= now {
        Verdict::fail("the served certificate has expired")
    } else if until - now < SOON {
        Verdict::warn("the served certificate expires within a day")
    } else {
        Verdict::pass("the served certificate is valid for more than a day")
    })
}

fn parse<'a>(pem: &'a [u8], what: &str) -> Result<Vec<CertificateDer<'a>>, Verdict> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    certificates.map_err(|error| Verdict::fail(format!("{what} isn't PEM: {error}")))
}

/// From when until when a certificate is valid, in seconds since 1970.
fn validity(certificate: &CertificateDer<'_>) -> Result<(u64, u64), Verdict> {
    let (_, parsed) = X509Certificate::from_der(certificate)
        .map_err(|error| Verdict::fail(format!("the served certificate can't be read: {error}")))?;
    let seconds = |time: x509_parser::time::ASN1Time| u64::try_from(time.timestamp()).unwrap_or_default();
    Ok((seconds(parsed.validity.not_before), seconds(parsed.validity.not_after)))
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};

    use super::super::Status;
    use super::*;

    const NAME: &str = "swansong-webhook.swansong-system.svc";
    /// 2026-06-01, in milliseconds.
    const NOW: u64 = 1_780_272_000_000;

    fn authority() -> (String, Issuer<'static, KeyPair>) {
        let mut parameters = CertificateParams::new(Vec::new()).expect("valid");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (parameters.not_before, parameters.not_after) =
            (date_time_ymd(2026, 1, 1), date_time_ymd(2030, 1, 1));
        let key = KeyPair::generate().expect("a key");
        let certificate = parameters.self_signed(&key).expect("signed");
        (certificate.pem(), Issuer::new(parameters, key))
    }

    fn leaf(issuer: &Issuer<'_, KeyPair>, name: &str, until: (i32, u8, u8)) -> String {
        let mut parameters = CertificateParams::new([name.to_owned()]).expect("valid");
        parameters.not_before = date_time_ymd(2026, 1, 1);
        parameters.not_after = date_time_ymd(until.0, until.1, until.2);
        parameters.signed_by(&KeyPair::generate().expect("a key"), issuer).expect("signed").pem()
    }

    fn status(judged: Judged) -> Status {
        judged.unwrap_or_else(|verdict| verdict).status
    }

    #[test]
    fn bundle_is_judged_apart_from_the_certificates_dates() {
        let ((ours, issuer), (other, _)) = (authority(), authority());
        let valid = leaf(&issuer, NAME, (2027, 1, 1));
        for (bundle, chain, expected) in [
            (ours.as_str(), valid.as_str(), Status::Pass),
            (&format!("{other}{ours}"), &valid, Status::Pass),
            (&ours, &leaf(&issuer, NAME, (2026, 2, 1)), Status::Pass),
            (&other, &valid, Status::Fail),
            ("", &valid, Status::Fail),
            (&ours, &leaf(&issuer, "elsewhere.svc", (2027, 1, 1)), Status::Fail),
            (&ours, "", Status::Fail),
        ] {
            assert_eq!(status(trust(bundle.as_bytes(), chain, NAME)), expected, "{bundle}{chain}");
        }
    }

    #[test]
    fn dates_are_compared_with_the_time_of_the_snapshot() {
        let (_, issuer) = authority();
        let at = |until| status(dates(&leaf(&issuer, NAME, until), NOW));
        assert_eq!(at((2027, 1, 1)), Status::Pass);
        assert_eq!(at((2026, 6, 2)), Status::Pass, "more than a day");
        assert_eq!(at((2026, 6, 1)), Status::Fail);
        assert_eq!(status(dates(&leaf(&issuer, NAME, (2027, 1, 1)), 1_000)), Status::Fail);
        assert_eq!(status(dates("nonsense", NOW)), Status::Fail);
    }
}
