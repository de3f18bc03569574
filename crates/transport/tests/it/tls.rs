//! Goal: TLS accepts the right peer and explains why it refuses others.
//! Method: both ends on loopback with self-signed certificates (expired ones are tested next to the code, which alone
//! can make them).

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use chappe_identity::{Contact, Proof, Scheme};
use chappe_transport::http::{Client, ClientLimits, Error};
use chappe_transport::tls;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const DEADLINE: Duration = Duration::from_secs(300);
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

fn own(directory: &Path, hosts: &[&str]) -> tls::Server {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let path = directory.join("http.pem");
    let made = tls::Server::self_signed(&path, "node", "urn:chappe:node:00", &hosts);
    made.unwrap().0
}

/// Serves one answer to each connection, until the test ends.
async fn serve(server: tls::Server) -> SocketAddr {
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, peer)) = listener.accept().await {
            if let Ok(mut stream) = server.accept(stream, peer, DEADLINE).await {
                let mut head = [0; 1024];
                let _ = stream.read(&mut head).await;
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                let _ = stream.write_all(answer).await;
                let _ = stream.shutdown().await;
            }
        }
    });
    address
}

async fn get(address: SocketAddr, client: tls::Client) -> Result<String, Error> {
    let contact = Contact {
        scheme: Scheme::Https,
        address,
        path: "/".to_owned(),
        proof: Proof::default(),
    };
    let client = Client::with_tls(ClientLimits::default(), client);
    let answer = client.get(&contact).await?;
    Ok(String::from_utf8(answer.body.to_vec()).unwrap())
}

#[tokio::test]
async fn the_pinned_certificate_is_trusted_and_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let server = own(directory.path(), &[]);
    let fingerprint = server.fingerprint();
    let address = serve(server).await;
    let pinned = tls::Client::with_fingerprint(fingerprint);
    assert_eq!(get(address, pinned).await.unwrap(), "ok");

    let other = "ab".repeat(32).parse().unwrap();
    let error = get(address, tls::Client::with_fingerprint(other))
        .await
        .unwrap_err();
    let hint = error.hint().unwrap();
    assert!(error.to_string().contains("its fingerprint is"), "{error}");
    assert!(hint.contains(&fingerprint.to_string()), "{hint}");
    assert_eq!(error.reason(), "certificate not accepted");
}

#[tokio::test]
async fn a_self_signed_certificate_is_made_once_and_is_its_own_authority() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("http.pem");
    let server = own(directory.path(), &["127.0.0.1", "::1", "node.example"]);
    assert_eq!(
        own(directory.path(), &[]).fingerprint(),
        server.fingerprint()
    );
    let address = serve(server).await;
    let trusting = || tls::Client::with_authorities(&path).unwrap();
    assert_eq!(get(address, trusting()).await.unwrap(), "ok");
    assert_eq!(
        get(address, trusting().named("node.example"))
            .await
            .unwrap(),
        "ok"
    );
    let error = get(address, trusting().named("other.example"))
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("it is not for \"other.example\""),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("let it be made for"));
}

#[tokio::test]
async fn plain_http_gets_an_explanation() {
    let directory = tempfile::tempdir().unwrap();
    let server = own(directory.path(), &[]);
    let address = serve(server.clone()).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let mut answer = Vec::new();
    // The connection may end with a reset, because the request is not read.
    let _ = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains(&format!("content-length: {}", body.len())),
        "{answer}"
    );

    // The reverse: TLS to a plain server.
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let plain = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let _ = stream.read(&mut [0; 1024]).await;
    });
    let error = get(plain, tls::Client::with_fingerprint(server.fingerprint())).await;
    let error = error.unwrap_err();
    assert_eq!(error.reason(), "no TLS", "{error}");
    assert!(error.hint().unwrap().contains("https://"));
}

#[tokio::test]
async fn a_silent_client_is_disconnected() {
    let directory = tempfile::tempdir().unwrap();
    let server = own(directory.path(), &[]);
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let _silent = TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (stream, peer) = listener.accept().await.unwrap();
    let error = server
        .accept(stream, peer, Duration::from_millis(1))
        .await
        .unwrap_err();
    assert!(matches!(error, tls::Error::Late { .. }), "{error}");
}

#[test]
fn unusable_files_are_named_with_a_hint() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let own = path("http.pem");
    tls::Server::self_signed(&own, "node", "urn:chappe:node:00", &[]).unwrap();
    let mode = std::fs::metadata(&own).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o600);
    tls::Server::self_signed(&path("other.pem"), "node", "urn:chappe:node:01", &[]).unwrap();
    std::fs::write(path("empty.pem"), "").unwrap();
    std::fs::copy(&own, path("open.pem")).unwrap();
    std::fs::set_permissions(path("open.pem"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let table = [
        (own.clone(), path("missing.pem"), "not found"),
        (path("missing.pem"), own.clone(), "not found"),
        (path("empty.pem"), own.clone(), "no certificate"),
        (own.clone(), path("open.pem"), "others can use it too"),
        (
            own.clone(),
            path("other.pem"),
            "not the key of the certificate",
        ),
    ];
    for (certificate, key, what) in table {
        let error = tls::Server::from_files(&certificate, &key).unwrap_err();
        let text = error.to_string();
        let says = text.to_lowercase().contains(what) || text.contains("No such file");
        assert!(says && error.hint().is_some(), "{text}");
    }
    assert!(tls::Client::with_authorities(&path("empty.pem")).is_err());
}
