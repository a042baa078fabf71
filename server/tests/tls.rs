//! Encryption over loopback: what trusts the certificate gets in, over gRPC and HTTP, and nothing else does.

use flovyn_core::Payload;
use flovyn_core::client::StartOptions;
use flovyn_core::error::Code;
use flovyn_core::id::OrgId;
use flovyn_core::runtime::Runtime;
use flovyn_core::storage::remote::{RemoteOptions, RemoteStorage};
use flovyn_server::{
    Access, Certificate, Config, Extensions, Identity, ServeOptions, ServerConfig, Serving, serve_with,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

const TOKEN: &str = "encrypted";

/// Whom clients trust, and what a server shows for `localhost`.
struct Papers {
    ca: PathBuf,
    certificate: Certificate,
}

fn papers(folder: &Path, name: &str) -> Papers {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let file = |what: &str, text: String| {
        let file = folder.join(format!("{name}-{what}.pem"));
        std::fs::write(&file, text).unwrap();
        file
    };
    Papers {
        ca: file("ca", issuer.pem()),
        certificate: Certificate { cert: file("cert", leaf.pem()), key: file("key", key.serialize_pem()) },
    }
}

async fn serving(certificate: Certificate) -> (Runtime, Serving) {
    let runtime = Runtime::open("memory:").await.unwrap();
    let access = Access::of([(TOKEN, Identity::of_org(OrgId::DEFAULT))]);
    let config = ServerConfig { grpc: ([127, 0, 0, 1], 0).into(), http: ([127, 0, 0, 1], 0).into(), access };
    let doors = ServeOptions { certificate: Some(certificate), ..ServeOptions::default() };
    let serving = serve_with(runtime.storage().clone(), runtime.chunks().clone(), config, doors).await.unwrap();
    (runtime, serving)
}

#[tokio::test(flavor = "multi_thread")]
async fn grpc_is_for_those_who_trust_the_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (papers(folder.path(), "own"), papers(folder.path(), "other"));
    let (_runtime, serving) = serving(own.certificate).await;
    assert!(serving.url().starts_with("https://") && serving.http_url().starts_with("https://"));
    let port = serving.grpc().port();
    let connect = async |url: String, ca: &Path| {
        RemoteStorage::connect_trusting(&url, RemoteOptions { token: Some(TOKEN.into()) }, Some(ca)).await
    };

    let remote = Runtime::over(Arc::new(connect(format!("https://localhost:{port}"), &own.ca).await.unwrap()));
    let handle = remote.client().start("nobody", Payload::of(&1).unwrap(), StartOptions::with_id("r")).await.unwrap();
    assert_eq!(remote.client().handle("r").await.unwrap().id(), handle.id());

    let stranger = connect(format!("https://localhost:{port}"), &other.ca).await.unwrap_err();
    assert_eq!(stranger.code(), Code::StorageUnavailable);
    assert!(stranger.message().contains("FLOVYN_CA"), "{stranger}");
    // The certificate is of localhost, not of its address.
    assert!(connect(format!("https://127.0.0.1:{port}"), &own.ca).await.is_err());
    assert!(connect(format!("http://localhost:{port}"), &own.ca).await.is_err());
    let missing = connect(format!("https://localhost:{port}"), &folder.path().join("nowhere")).await.unwrap_err();
    assert!(missing.code() == Code::InvalidArgument && missing.message().contains("nowhere"), "{missing}");
    serving.stop().await.unwrap();
}

/// What a client that trusts a file gets for a request; nothing where the handshake fails.
async fn ask(address: std::net::SocketAddr, ca: &Path, request: &str) -> Option<String> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let tcp = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut tls = TlsConnector::from(Arc::new(config)).connect(name, tcp).await.ok()?;
    tls.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A server may end a connection without the word that it does.
    let _ = tls.read_to_end(&mut answer).await;
    Some(String::from_utf8(answer).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn http_is_encrypted_too() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (papers(folder.path(), "own"), papers(folder.path(), "other"));
    let (_runtime, serving) = serving(own.certificate).await;
    let host = format!("localhost:{}", serving.http().port());
    let request = format!(
        "GET /api/orgs/default/agent-executions HTTP/1.1\r\nhost: {host}\r\norigin: https://{host}\r\n\
         authorization: Bearer {TOKEN}\r\nconnection: close\r\n\r\n"
    );
    // Somebody who connects and says nothing keeps nobody waiting.
    let _mute = TcpStream::connect(serving.http()).await.unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(20), ask(serving.http(), &own.ca, &request)).await;
    let answer = answer.expect("it answers").expect("it is trusted");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"items\":[]"), "{answer}");
    assert_eq!(ask(serving.http(), &other.ca, &request).await, None);

    // In clear there is nothing to be had.
    let mut clear = TcpStream::connect(serving.http()).await.unwrap();
    clear.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = clear.read_to_end(&mut answer).await;
    assert!(!String::from_utf8_lossy(&answer).contains("HTTP/1.1"));
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (papers(folder.path(), "own"), papers(folder.path(), "other"));
    let (cert, key) = (own.certificate.cert, own.certificate.key);
    let nowhere = folder.path().join("nowhere.pem");
    for (cert, key, told) in [
        (&nowhere, &key, "nowhere.pem"),
        (&cert, &nowhere, "nowhere.pem"),
        (&key, &key, "own-key.pem"),
        (&cert, &other.certificate.key, "other-key.pem"),
    ] {
        let tls = Some(Certificate { cert: cert.clone(), key: key.clone() });
        let anywhere = ([127, 0, 0, 1], 0).into();
        let config = Config { db: Some("memory:".into()), grpc: anywhere, http: anywhere, tls, ..Config::default() };
        let refused =
            flovyn_server::Replica::start(&config, Extensions::default()).await.err().expect("it cannot be used");
        assert!(refused.code() == Code::InvalidArgument && refused.message().contains(told), "{refused}");
    }
}

const READY: &str = "GET /_/ready HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";

/// Writes what one certificate's files hold into another's.
fn replace(old: &Certificate, new: &Certificate) {
    std::fs::copy(&new.cert, &old.cert).unwrap();
    std::fs::copy(&new.key, &old.key).unwrap();
}

async fn trusted(address: std::net::SocketAddr, ca: &Path) -> bool {
    ask(address, ca, READY).await.is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

#[tokio::test(flavor = "multi_thread")]
async fn renewed_files_are_shown_without_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (papers(folder.path(), "old"), papers(folder.path(), "new"));
    let (_runtime, serving) = serving(old.certificate.clone()).await;
    let (http, grpc) = (serving.http(), serving.grpc());
    assert!(trusted(http, &old.ca).await && !trusted(http, &new.ca).await);
    // Half of it: nothing can be shown of it, so what was there is shown further.
    std::fs::copy(&new.certificate.key, &old.certificate.key).unwrap();
    assert!(serving.renew(None, Some(&old.certificate)).unwrap_err().message().contains("old-key.pem"));
    assert!(trusted(http, &old.ca).await);
    replace(&old.certificate, &new.certificate);
    let renewed = async {
        while !trusted(http, &new.ca).await {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), renewed).await.expect("the files are looked at");
    assert!(!trusted(http, &old.ca).await);
    let url = format!("https://localhost:{}", grpc.port());
    let options = RemoteOptions { token: Some(TOKEN.into()) };
    RemoteStorage::connect_trusting(&url, options, Some(&new.ca)).await.expect("both doors show it");
    serving.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_read_again_counts_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (papers(folder.path(), "own"), papers(folder.path(), "other"));
    let anywhere = ([127, 0, 0, 1], 0).into();
    let tls = Some(own.certificate);
    let config = Config { db: Some("memory:".into()), grpc: anywhere, http: anywhere, tls, ..Config::default() };
    let replica = flovyn_server::Replica::start(&config, Extensions::default()).await.unwrap();
    let http = replica.serving().http();
    assert!(trusted(http, &own.ca).await);

    let nowhere = Certificate { cert: folder.path().join("nowhere.pem"), ..other.certificate.clone() };
    let wrong = Config { tls: Some(nowhere), drain: "7s".into(), ..config.clone() };
    assert!(replica.reload(&wrong).unwrap_err().message().contains("nowhere.pem"));
    assert!(replica.reload(&Config { drain: "soon".into(), ..config.clone() }).is_err());
    assert!(trusted(http, &own.ca).await && replica.drain_time() == Duration::from_secs(5), "all stays as it was");

    let fresh = Config { tls: Some(other.certificate), drain: "7s".into(), ..config };
    replica.reload(&fresh).unwrap();
    assert!(trusted(http, &other.ca).await && !trusted(http, &own.ca).await);
    assert_eq!(replica.drain_time(), Duration::from_secs(7));
    replica.stop().await.unwrap();
}
