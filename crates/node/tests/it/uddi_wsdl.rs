//! Goal: WSDL documents are added, fetched within the address policy, found and removed over SOAP and REST; the services of
//! a device are found in UDDI as soon as it is there, with its WSDL, and end with it.
//! Method: a node in this process, a server of documents, and a real device on the loopback.

use std::collections::HashMap;
use std::net::SocketAddr;

use chappe_node::Node;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::common;
use crate::common::devices::{device, looking, unique, until};
use crate::common::{Answer, Operated, block, config, get, own_address, send};

const WSDL: &str = "/uddi/wsdl";

fn document(port_type: &str, import: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?>\n<!-- kept --><definitions xmlns='http://schemas.xmlsoap.org/wsdl/' \
         xmlns:t='urn:{port_type}' targetNamespace='urn:{port_type}' xmlns:soap='http://schemas.xmlsoap.org/wsdl/soap/'>\
         {import}<message name='M'><part name='p' element='t:E'/></message><portType name='{port_type}'><operation \
         name='Read'><input message='t:M'/></operation></portType><binding name='B' type='t:{port_type}'>\
         <soap:binding transport='http://schemas.xmlsoap.org/soap/http'/></binding><service name='S{port_type}'>\
         <port name='P' binding='t:B'><soap:address location='http://192.0.2.1/'/></port></service></definitions>"
    )
}

fn envelope(namespace: &str, name: &str, attributes: &str, inner: &str) -> String {
    format!(
        "<s:Envelope xmlns:s='http://schemas.xmlsoap.org/soap/envelope/'><s:Body><{name} {attributes} \
         xmlns='{namespace}'>{inner}</{name}></s:Body></s:Envelope>"
    )
}

async fn post(node: &Node, path: &str, message: &str) -> Answer {
    let fields = [
        ("Content-Type", "text/xml; charset=utf-8"),
        ("SOAPAction", "\"\""),
    ];
    send(node, "POST", path, &fields, message.as_bytes()).await
}

async fn ask(node: &Node, name: &str, inner: &str) -> Answer {
    let namespace = "https://chappe.example/ns/wsdl-registry";
    post(node, WSDL, &envelope(namespace, name, "", inner)).await
}

async fn uddi(node: &Node, path: &str, name: &str, attributes: &str, inner: &str) -> Answer {
    let attributes = format!("generic='2.0' {attributes}");
    let message = envelope("urn:uddi-org:api_v2", name, &attributes, inner);
    post(node, path, &message).await
}

/// What is between these two texts for the first time.
fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let rest = text
        .split_once(start)
        .unwrap_or_else(|| panic!("no {start} in {text}"))
        .1;
    rest.split_once(end).unwrap().0
}

async fn token(node: &Node, user: &str, credential: &str) -> String {
    let attributes = format!("userID='{user}' cred='{credential}'");
    let answer = uddi(node, "/uddi/publish", "get_authToken", &attributes, "").await;
    between(&answer.body, "<authInfo>", "<").to_owned()
}

async fn business(node: &Node, token: &str) -> String {
    let inner = format!(
        "<authInfo>{token}</authInfo><businessEntity businessKey=''><name>Ward 3</name></businessEntity>"
    );
    let answer = uddi(node, "/uddi/publish", "save_business", "", &inner).await;
    between(&answer.body, "businessKey=\"", "\"").to_owned()
}

/// Serves documents by path until the test ends; counts how often each was asked for.
async fn serve(documents: HashMap<&'static str, String>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = vec![0; 4_096];
            let length = stream.read(&mut head).await.unwrap_or_default();
            let head = String::from_utf8_lossy(&head[..length]).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default();
            let (status, body) = match documents.get(path) {
                Some(body) => ("200 OK", body.as_str()),
                None => ("404 Not Found", ""),
            };
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/wsdl+xml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[test]
fn a_document_is_added_found_and_removed_over_soap() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let node = &world.node;
        let credential = world.account("ada", &["write"]).await;
        let ada = token(node, "ada", &credential).await;
        let ward = business(node, &ada).await;
        let text = document("Clock", "");
        let inner = format!(
            "<authInfo>{ada}</authInfo><key>urn:x-clock</key><url>http://192.0.2.1/clock?wsdl</url><content>{}</content>\
             <businessKey>{ward}</businessKey>",
            base64(&text)
        );
        let added = ask(node, "addWSDLFileAdvert", &inner).await;
        assert_eq!(added.status, 200, "{}", added.body);
        assert!(added.body.contains("<serviceKey>"), "{}", added.body);
        let content = ask(node, "getWSDLAdvertContent", "<key>urn:x-clock</key>").await;
        assert!(content.body.contains(&base64(&text)), "{}", content.body);
        let url = "<url>http://192.0.2.1/clock?wsdl</url>";
        let content = ask(node, "getWSDLAdvertContentByURL", url).await;
        assert!(
            content.body.contains("<owner>ada</owner>"),
            "{}",
            content.body
        );
        let operations = ask(node, "getOperationsByURL", url).await;
        let iri = between(&operations.body, "<iri>", "</iri>");
        let operation = format!("<operation>{iri}</operation>");
        let input = ask(node, "getInputMessageOfOperation", &operation).await;
        assert!(
            input.body.contains("urn:Clock#element(E)"),
            "{}",
            input.body
        );
        let services = ask(
            node,
            "findServicesByInterface",
            "<interface>Clock</interface>",
        )
        .await;
        assert!(
            services.body.contains("<name>SClock</name>"),
            "{}",
            services.body
        );
        let found = uddi(
            node,
            "/uddi/inquiry",
            "find_service",
            "",
            "<name>SClock</name>",
        )
        .await;
        assert!(found.body.contains("serviceKey="), "{}", found.body);
        let described = get(node, "/uddi/wsdl?wsdl").await;
        let location = format!("location=\"http://{}{WSDL}\"", node.address());
        assert!(described.body.contains(&location), "{}", described.body);
        let inner = format!("<authInfo>{ada}</authInfo><key>urn:x-clock</key>");
        let removed = ask(node, "removeWSDLFile", &inner).await;
        assert_eq!(removed.status, 200, "{}", removed.body);
        let services = ask(
            node,
            "findServicesByInterface",
            "<interface>Clock</interface>",
        )
        .await;
        assert!(!services.body.contains("SClock"), "{}", services.body);
        // Each change is recorded.
        let audit = world
            .change("GET", "/api/v1/streams/chappe.audit/elements", &json!(null))
            .await;
        for subject in [
            "addWSDLFileAdvert urn:x-clock",
            "removeWSDLFile urn:x-clock",
        ] {
            assert!(audit.body.contains(subject), "{}", audit.body);
        }
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn bad_requests_get_a_fault_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let node = &world.node;
        let credential = world.account("ada", &["write"]).await;
        let others = world.account("bob", &["write"]).await;
        let (ada, bob) = (
            token(node, "ada", &credential).await,
            token(node, "bob", &others).await,
        );
        let content = format!("<content>{}</content>", base64(&document("Clock", "")));
        let add = |token: &str, inner: &str| format!("<authInfo>{token}</authInfo>{inner}");
        let first = ask(
            node,
            "addWSDLFile",
            &add(&ada, &format!("<key>urn:mine</key>{content}")),
        )
        .await;
        assert_eq!(first.status, 200, "{}", first.body);
        let doctype = base64("<!DOCTYPE a [<!ENTITY b 'c'>]><a/>");
        for (name, inner, expected) in [
            ("addWSDLFile", content.clone(), "E_authTokenRequired"),
            (
                "removeWSDLFile",
                "<key>urn:mine</key>".to_owned(),
                "E_authTokenRequired",
            ),
            (
                "removeWSDLFile",
                add(&bob, "<key>urn:mine</key>"),
                "E_userMismatch",
            ),
            (
                "addWSDLFile",
                add(&bob, &format!("<key>urn:mine</key>{content}")),
                "E_userMismatch",
            ),
            (
                "removeWSDLFile",
                add(&ada, "<key>urn:none</key>"),
                "E_invalidKeyPassed",
            ),
            (
                "addWSDLFile",
                add(&ada, &format!("<key>urn:chappe:x</key>{content}")),
                "node's own entities",
            ),
            (
                "addWSDLFile",
                add(&ada, &format!("<content>{doctype}</content>")),
                "E_valueNotAllowed",
            ),
            (
                "addWSDLFile",
                add(&ada, "<url>http://127.0.0.1:9/</url>"),
                "is this host itself",
            ),
            (
                "addWSDLFile",
                add(&ada, "<url>http://169.254.169.254/</url>"),
                "metadata service",
            ),
            (
                "addWSDLFile",
                add(&ada, "<url>http://192.0.2.1/</url>"),
                "not in an allowed prefix",
            ),
            (
                "addWSDLFile",
                add(&ada, "<url>http://example.org/</url>"),
                "not a literal IP address",
            ),
            (
                "addWSDLFile",
                add(&ada, "<url>file:///etc/passwd</url>"),
                "E_invalidURLPassed",
            ),
            (
                "getWSDLAdvertContent",
                "<key>urn:none</key>".to_owned(),
                "E_invalidKeyPassed",
            ),
            (
                "getAllWSDLFiles",
                "<authInfo>wrong</authInfo>".to_owned(),
                "E_authTokenRequired",
            ),
            ("find_service", String::new(), "E_unsupported"),
        ] {
            let answer = ask(node, name, &inner).await;
            assert_eq!(answer.status, 500, "{name}: {}", answer.body);
            assert!(
                answer.body.contains(expected),
                "{name} {inner}: {}",
                answer.body
            );
        }
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn imports_are_fetched_once_and_only_where_the_policy_allows() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.exchange.contact = vec!["127.0.0.1".into()];
        let world = Operated::start(&config, None).await;
        let node = &world.node;
        let import = |location: &str| format!("<import namespace='urn:i' location='{location}'/>");
        let deep = |n: usize| document(&format!("Deep{n}"), &import(&format!("deep{}", n + 1)));
        let circle = [
            import("b"),
            import("http://192.0.2.1/far"),
            import("missing"),
            import("broken"),
        ]
        .concat();
        let mut documents = HashMap::from([
            ("/a", document("A", &circle)),
            ("/b", document("B", &import("a"))),
            ("/broken", "<!DOCTYPE a []><a/>".to_owned()),
        ]);
        for (n, path) in ["/deep0", "/deep1", "/deep2", "/deep3", "/deep4", "/deep5"]
            .into_iter()
            .enumerate()
        {
            documents.insert(path, deep(n));
        }
        let server = serve(documents).await;
        let path = |name: &str| {
            let key = format!("http://{server}/{name}")
                .replace(':', "%3A")
                .replace('/', "%2F");
            format!("/api/v1/registry/documents/{key}")
        };
        let added = world.change_bytes("PUT", &path("a"), b"").await;
        assert_eq!(added.status, 200, "{}", added.body);
        let json = added.json();
        assert_eq!(json["documents"].as_array().unwrap().len(), 2, "{json}");
        let unread = json["unread"].to_string();
        for reason in ["not in an allowed prefix", "404", "/broken"] {
            assert!(unread.contains(reason), "{unread}");
        }
        let found = ask(
            node,
            "findInterfaceByOperation",
            "<operation>Read</operation>",
        )
        .await;
        assert!(
            found.body.contains("urn:A#") && found.body.contains("urn:B#"),
            "{}",
            found.body
        );
        let one = get(node, &path("b")).await;
        assert_eq!(one.headers["content-type"], "application/wsdl+xml");
        assert_eq!(one.body, document("B", &import("a")));
        let deep = world.change_bytes("PUT", &path("deep0"), b"").await.json();
        assert_eq!(deep["documents"].as_array().unwrap().len(), 5, "{deep}");
        assert!(
            deep["unread"].to_string().contains("documents deep"),
            "{deep}"
        );
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn documents_are_kept_over_rest() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let node = &world.node;
        let ward = business(node, &token(node, "operator", &world.token).await).await;
        for name in ["One", "Two", "Three"] {
            let path = format!("/api/v1/registry/documents/urn%3A{name}?business={ward}");
            let text = document(name, "");
            let put = world.change_bytes("PUT", &path, text.as_bytes()).await;
            assert_eq!(put.status, 200, "{}", put.body);
            assert_eq!(
                put.json()["documents"][0]["services"]
                    .as_array()
                    .unwrap()
                    .len(),
                1
            );
            let one = get(node, &format!("/api/v1/registry/documents/urn%3A{name}")).await;
            assert_eq!(one.body, text);
            assert_eq!(one.headers["content-type"], "text/xml");
            // It is no page of the node, whatever a browser makes of it.
            let policy = &one.headers["content-security-policy"];
            assert_eq!(policy, "default-src 'none'; sandbox");
        }
        let (mut next, mut keys) = (String::new(), Vec::new());
        loop {
            let page = get(node, &format!("/api/v1/registry/documents?limit=2{next}"))
                .await
                .json();
            let documents = page["documents"].as_array().unwrap();
            keys.extend(
                documents
                    .iter()
                    .map(|it| it["key"].as_str().unwrap().to_owned()),
            );
            match page["next"].as_str() {
                Some(cursor) => next = format!("&cursor={cursor}"),
                None => break,
            }
        }
        assert_eq!(keys, ["urn:One", "urn:Three", "urn:Two"]);
        let services = get(
            node,
            "/api/v1/registry/services?operation=Read&input=p&limit=2",
        )
        .await
        .json();
        assert_eq!(services["services"].as_array().unwrap().len(), 2);
        assert!(services["next"].is_string());
        let services = get(node, "/api/v1/registry/services?interface=Two")
            .await
            .json();
        assert_eq!(services["services"][0]["names"][0], "STwo");
        // The entity shows what the document says, without its bytes.
        let entity = get(node, "/api/v1/entities/urn%3AOne").await.body;
        assert!(
            entity.contains("ns/wsdl#defines") && !entity.contains("ns/wsdl#content"),
            "{entity}"
        );
        let path = "/api/v1/registry/documents/urn%3AOne";
        assert_eq!(send(node, "DELETE", path, &[], b"").await.status, 401);
        assert_eq!(world.change_bytes("DELETE", path, b"").await.status, 204);
        assert_eq!(get(node, path).await.status, 404);
        let empty = world
            .change_bytes("PUT", "/api/v1/registry/documents/urn%3Ax", b"")
            .await;
        assert_eq!(empty.status, 400, "{}", empty.body);
        let wrong = world
            .change_bytes("PUT", "/api/v1/registry/documents/urn%3Ax", b"<a/>")
            .await;
        assert_eq!(wrong.status, 422, "{}", wrong.body);
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_devices_service_is_found_in_uddi_and_by_its_wsdl() {
    let directory = tempfile::tempdir().unwrap();
    let name = format!("thermometer-{}", unique());
    block(async {
        let world = Operated::start(&looking(directory.path()), None).await;
        let node = &world.node;
        let device = device(
            directory.path(),
            &name,
            "urn:x:temperature",
            &own_address().to_string(),
        );
        let endpoint = device.host().endpoint().replace(':', "%3A");
        let path = format!("/api/v1/devices/{endpoint}");
        let shown = until(node, &path, |device| device["state"] == "usable").await;
        let address = shown["services"][0]["address"].as_str().unwrap().to_owned();
        // Other tests have thermometers as well: its keyword is its name.
        let keyword = format!(
            "<categoryBag><keyedReference tModelKey='uuid:A035A07C-F362-44DD-8F95-E2B134BF43B4' keyName='device' \
             keyValue='{name}'/></categoryBag>"
        );
        let found = uddi(
            node,
            "/uddi/inquiry",
            "find_service",
            "",
            &format!("<name>thermometer</name>{keyword}"),
        )
        .await;
        assert!(found.body.contains("serviceKey="), "{}", found.body);
        let key = between(&found.body, "serviceKey=\"", "\"").to_owned();
        let inner = format!("<serviceKey>{key}</serviceKey>");
        let detail = uddi(node, "/uddi/inquiry", "get_serviceDetail", "", &inner)
            .await
            .body;
        assert!(
            detail.contains(&format!(">{address}</accessPoint>")),
            "{address}: {detail}"
        );
        let by_wsdl = ask(
            node,
            "findServicesByInterface",
            "<interface>ThermometerService</interface>",
        )
        .await;
        assert!(by_wsdl.body.contains(&key), "{}", by_wsdl.body);
        let business = between(&detail, "businessKey=\"", "\"");
        let inner = format!("<businessKey>{business}</businessKey>");
        let owner = uddi(node, "/uddi/inquiry", "get_businessDetail", "", &inner)
            .await
            .body;
        assert!(
            owner.contains(">test</name>") && owner.contains("authorizedName=\"node\""),
            "{owner}"
        );
        let documents = get(node, "/api/v1/registry/documents").await.body;
        assert!(documents.contains("urn:chappe:document:"), "{documents}");
        device.stop().await;
        let inner = format!("<serviceKey>{key}</serviceKey>");
        common::linked::until("its service is gone", async || {
            let answer = uddi(node, "/uddi/inquiry", "get_serviceDetail", "", &inner).await;
            answer.body.contains("E_invalidKeyPassed")
        })
        .await;
        let documents = get(node, "/api/v1/registry/documents").await.json();
        let of_device = |it: &&serde_json::Value| it["key"].as_str().unwrap().contains(&key);
        let left = documents["documents"]
            .as_array()
            .unwrap()
            .iter()
            .filter(of_device);
        assert_eq!(left.count(), 0, "{documents}");
        world.node.shutdown().await.unwrap();
    });
}
