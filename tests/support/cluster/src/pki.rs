//! The cluster's own certificate authority.

use std::net::IpAddr;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};

use crate::Error;

/// What a certificate may be used for.
#[derive(Clone, Copy)]
pub(crate) enum Usage {
    Client,
    Server,
}

/// A certificate with its key, both PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Signs the certificates of one cluster; its key never leaves memory.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    pub(crate) fn new() -> Result<Self, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = name("swansong-testcluster", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate })
    }

    /// The authority's certificate, PEM.
    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A client certificate: Kubernetes takes the user from the common name, groups from organisations.
    pub(crate) fn client(&self, user: &str, groups: &[&str]) -> Result<Pair, Error> {
        self.issue(user, groups, Vec::new(), Usage::Client)
    }

    /// A server certificate for the given names and addresses.
    pub(crate) fn server(
        &self,
        common_name: &str,
        names: &[&str],
        addresses: &[IpAddr],
    ) -> Result<Pair, Error> {
        let mut alternatives = Vec::new();
        for name in names {
            alternatives.push(SanType::DnsName((*name).try_into()?));
        }
        alternatives.extend(addresses.iter().copied().map(SanType::IpAddress));
        self.issue(common_name, &[], alternatives, Usage::Server)
    }

    fn issue(
        &self,
        common_name: &str,
        organisations: &[&str],
        alternatives: Vec<SanType>,
        usage: Usage,
    ) -> Result<Pair, Error> {
        let mut params = CertificateParams::default();
        params.distinguished_name = name(common_name, organisations);
        params.subject_alt_names = alternatives;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match usage {
            Usage::Client => ExtendedKeyUsagePurpose::ClientAuth,
            Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        Ok(Pair { certificate, key: key.serialize_pem() })
    }
}

/// The key pair that signs service-account tokens: private and public, both PEM.
pub(crate) fn token_keys() -> Result<(String, String), Error> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

fn name(common_name: &str, organisations: &[&str]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    for organisation in organisations {
        name.push(DnType::OrganizationName, *organisation);
    }
    name
}
