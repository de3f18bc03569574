//! Goal: a message signed by an account's certificate is the account's, without a token; nothing but what was signed
//! counts, and nothing twice, through a restart; answers are signed.
//! Method: a node in this process, and certificates of the tests of `identity`.

use chappe_identity::certificate::{Certificate, SigningKey, TrustStore};
use chappe_node::config::{Config, Read, SignatureMode};
use chappe_soap::security::{Policy, ReplayCache, Signer, verify};
use chappe_xml::{Element, Limits};
use ring::rand::SystemRandom;
use serde_json::json;

use crate::common::{Answer, Operated, block, config, send};
use crate::registry_changes::{envelope as soap_1_2, manager, receiver, subscribe};
use chappe_transport::signatures::SignatureFiles;

const INQUIRY: &str = "/uddi/inquiry";
const PUBLISH: &str = "/uddi/publish";
const FOLDER: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../identity/tests/certificates/"
);

fn file(name: &str) -> String {
    std::fs::read_to_string(format!("{FOLDER}{name}")).unwrap()
}

fn unix_s() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap().as_secs()
}

fn envelope(inner: &str) -> String {
    format!(
        "<s:Envelope xmlns:s='http://schemas.xmlsoap.org/soap/envelope/'><s:Body>{inner}</s:Body></s:Envelope>"
    )
}

fn find(name: &str) -> String {
    format!(
        "<find_business generic='2.0' xmlns='urn:uddi-org:api_v2'><name>{name}</name></find_business>"
    )
}

fn save(name: &str) -> String {
    format!(
        "<save_business generic='2.0' xmlns='urn:uddi-org:api_v2'><businessEntity businessKey=''>\
         <name>{name}</name></businessEntity></save_business>"
    )
}

fn signed(by: &str, inner: &str, unix_s: u64) -> String {
    signed_document(by, &envelope(inner), unix_s)
}

fn signed_document(by: &str, document: &str, unix_s: u64) -> String {
    let random = SystemRandom::new();
    let key = SigningKey::from_pem(&file(&format!("{by}.key")), &random).unwrap();
    let chain = file(&format!("{by}.pem")) + &file("intermediate.pem");
    let certificates = Certificate::from_pem(&chain).unwrap();
    let signer = Signer::new(key, certificates).unwrap();
    let envelope = Element::parse_within(document.as_bytes(), Limits::default()).unwrap();
    signer.sign(&envelope, unix_s, &random).unwrap()
}

/// A configuration whose node signs, and judges messages to `/uddi/inquiry` by this mode.
pub(crate) fn with_signatures(directory: &std::path::Path, inquiry: SignatureMode) -> Config {
    let mut config = config(directory);
    config.access.read = Read::Token;
    let rules = &mut config.signatures;
    (rules.inquiry, rules.publication) = (inquiry, SignatureMode::Accepted);
    rules.authorities = format!("{FOLDER}root.pem").into();
    rules.revocation_lists = format!("{FOLDER}root.crl").into();
    let own = directory.join("own.key");
    std::fs::write(&own, file("rsa.key")).unwrap();
    let only_owner = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(&own, only_owner).unwrap();
    let chain = directory.join("own.pem");
    std::fs::write(&chain, file("rsa.pem") + &file("intermediate.pem")).unwrap();
    (rules.certificate, rules.key) = (chain, own);
    config
}

impl Operated {
    async fn told(&self, path: &str, message: &str) -> Answer {
        let fields = [("Content-Type", "text/xml; charset=utf-8")];
        send(&self.node, "POST", path, &fields, message.as_bytes()).await
    }

    /// Adds an account that is recognized by a certificate.
    async fn signer(&self, name: &str, subject: &str, roles: &[&str]) {
        let account = json!({ "name": name, "roles": roles, "certificate": subject });
        let added = self.change("POST", "/api/v1/accounts", &account).await;
        assert_eq!(added.status, 201, "{added:?}");
    }
}

/// The text of an answer whose signature is valid.
fn verified(answer: &Answer) -> String {
    verified_document(&answer.body)
}

fn verified_document(document: &str) -> String {
    let trust = TrustStore::from_pem(&file("root.pem")).unwrap();
    let (policy, mut replays) = (Policy::default(), ReplayCache::empty());
    let received = verify(document.as_bytes(), &policy, &trust, &mut replays, unix_s());
    let received = received.unwrap_or_else(|error| panic!("{error}: {document}"));
    assert_eq!(
        received.certificate.subject().to_string(),
        "O=Ward 3,CN=rsa"
    );
    received.to_text()
}

/// The faultcode.
fn fault(answer: &Answer) -> &str {
    assert_eq!(answer.status, 500, "{answer:?}");
    let rest = answer.body.split("<faultcode>").nth(1);
    rest.and_then(|rest| rest.split('<').next()).unwrap()
}

#[test]
fn a_signed_message_is_of_the_account_with_the_certificate() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let config = with_signatures(directory.path(), SignatureMode::Accepted);
        let world = Operated::start(&config, None).await;
        world
            .signer("ada", "O=Ward 3,CN=p256", &["read", "write"])
            .await;
        let saved = world
            .told(PUBLISH, &signed("p256", &save("Ward 3"), unix_s()))
            .await;
        assert!(
            verified(&saved).contains("authorizedName=\"ada\""),
            "{saved:?}"
        );
        let found = world
            .told(INQUIRY, &signed("p256", &find("ward"), unix_s()))
            .await;
        assert!(verified(&found).contains("Ward 3"), "{found:?}");
        // Without a signature a message counts as it did: no token, no answer, unless the account sends one.
        assert_eq!(
            world.told(INQUIRY, &envelope(&find("ward"))).await.status,
            401
        );
        let unsigned = world.told(PUBLISH, &envelope(&save("Ward 4"))).await;
        assert!(
            verified(&unsigned).contains("E_authTokenRequired"),
            "{unsigned:?}"
        );
        // A trusted certificate that no account has is nobody's.
        let other = world
            .told(INQUIRY, &signed("rsa", &find("ward"), unix_s()))
            .await;
        assert_eq!(other.status, 401, "{other:?}");
        let audit = world
            .change("GET", "/api/v1/streams/chappe.audit/elements", &json!(0))
            .await;
        assert!(
            audit.body.contains("uddi_publish") && audit.body.contains("ada"),
            "{audit:?}"
        );
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_message_counts_once_through_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let config = with_signatures(directory.path(), SignatureMode::Accepted);
        let world = Operated::start(&config, None).await;
        world
            .signer("ada", "O=Ward 3,CN=p256", &["read", "write"])
            .await;
        let message = signed("p256", &save("Ward 3"), unix_s());
        assert_eq!(world.told(PUBLISH, &message).await.status, 200);
        for path in [PUBLISH, INQUIRY] {
            let again = world.told(path, &message).await;
            assert_eq!(fault(&again), "wsse:FailedAuthentication", "{again:?}");
        }
        let token = world.token.clone();
        world.node.shutdown().await.unwrap();
        let world = Operated::start(&config, Some(token)).await;
        let again = world.told(PUBLISH, &message).await;
        assert_eq!(fault(&again), "wsse:FailedAuthentication", "{again:?}");
        let other = signed("p256", &save("Ward 4"), unix_s());
        assert_eq!(world.told(PUBLISH, &other).await.status, 200);
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn what_was_not_signed_has_no_effect() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let config = with_signatures(directory.path(), SignatureMode::Required);
        let world = Operated::start(&config, None).await;
        world
            .signer("ada", "O=Ward 3,CN=p256", &["read", "write"])
            .await;
        let message = signed("p256", &save("Ward 3"), unix_s());
        let changed = message.replace("Ward 3", "Ward 9");
        let body = message
            .find("<s:Body")
            .or_else(|| message.find("Body"))
            .unwrap();
        let body = message[..body].rfind('<').unwrap_or(body);
        let end = message.rfind("</").unwrap();
        let doubled = format!(
            "{}{}{}",
            &message[..end],
            &message[body..end],
            &message[end..]
        );
        let old = signed("p256", &save("Ward 3"), unix_s() - 1_000);
        for (what, message) in [("changed", changed), ("doubled", doubled), ("old", old)] {
            let refused = world.told(PUBLISH, &message).await;
            assert!(fault(&refused).starts_with("wsse:"), "{what}: {refused:?}");
        }
        let unsigned = world.told(INQUIRY, &envelope(&find("ward"))).await;
        assert_eq!(fault(&unsigned), "wsse:FailedAuthentication");
        let found = world
            .told(INQUIRY, &signed("p256", &find("%"), unix_s()))
            .await;
        assert!(!verified(&found).contains("Ward"), "{found:?}");
        let unknown = world
            .told(INQUIRY, &signed("rsa", &find("%"), unix_s()))
            .await;
        assert!(verified(&unknown).contains("E_unknownUser"), "{unknown:?}");
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn subscriptions_to_the_registry_and_their_events_are_signed() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = with_signatures(directory.path(), SignatureMode::Required);
        config.signatures.subscriptions = SignatureMode::Required;
        config.discovery.contact = vec!["127.0.0.1/32".into()];
        let world = Operated::start(&config, None).await;
        world.signer("ada", "O=Ward 3,CN=p256", &["read"]).await;
        let source = "/registry/events?prefix=pump";
        let (sink, mut messages) = receiver().await;
        let tell = async |path: &str, message: &str| {
            let fields = [("Content-Type", "application/soap+xml")];
            send(&world.node, "POST", path, &fields, message.as_bytes()).await
        };
        let request = soap_1_2("Subscribe", source, &subscribe(&sink, &sink));
        let unsigned = tell(source, &request).await;
        assert_eq!(unsigned.status, 400, "{unsigned:?}");
        assert!(
            verified(&unsigned).contains("FailedAuthentication"),
            "{unsigned:?}"
        );
        let stranger = tell(source, &signed_document("rsa", &request, unix_s())).await;
        assert!(verified(&stranger).contains("no account"), "{stranger:?}");
        let message = signed_document("p256", &request, unix_s());
        let answer = tell(source, &message).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let answer = verified(&answer);
        assert!(answer.contains("SubscribeResponse"), "{answer}");
        assert_eq!(
            tell(source, &message).await.status,
            400,
            "a message counts once"
        );
        let entity = json!({"key": "urn:x:1", "name": "Pump one"});
        let published = world.change("POST", "/api/v1/entities", &entity).await;
        assert_eq!(published.status, 201, "{published:?}");
        let event = messages.recv().await.unwrap();
        let (_, event) = event.split_once("\r\n\r\n").unwrap();
        assert!(verified_document(event).contains("urn:x:1"), "{event}");
        let manager = manager(&answer);
        let renewal = soap_1_2("GetStatus", &manager, "<e:GetStatus/>");
        assert_eq!(tell(&manager, &renewal).await.status, 400);
        let status = tell(&manager, &signed_document("p256", &renewal, unix_s())).await;
        assert!(verified(&status).contains("Expires"), "{status:?}");
        world.node.shutdown().await.unwrap();
    });
}

/// The example of the library, which docs/reference/signatures.md shows.
#[path = "../../../transport/examples/signed_uddi.rs"]
#[allow(dead_code, reason = "its command line is not used here")]
mod example;

#[test]
fn the_example_of_the_library_reads_only_what_answers_its_request() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let config = with_signatures(directory.path(), SignatureMode::Required);
        let world = Operated::start(&config, None).await;
        // The issuer counts, too.
        let issuer = |name: &str| format!("O=Ward 3,CN=p256;issuer=O=Ward 3,CN={name}");
        world.signer("eve", &issuer("other"), &["read"]).await;
        let key = directory.path().join("ada.key");
        std::fs::write(&key, file("p256.key")).unwrap();
        let only_owner = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&key, only_owner).unwrap();
        let files = SignatureFiles {
            authorities: format!("{FOLDER}root.pem").into(),
            certificate: Some((format!("{FOLDER}p256.pem").into(), key)),
            ..SignatureFiles::default()
        };
        let ask = async |body: &str| {
            let url = format!("http://{}{INQUIRY}", world.node.address());
            example::call(&url, &files, Element::parse(body.as_bytes()).unwrap()).await
        };
        let unknown = ask(&find("%")).await.unwrap_err();
        println!("{unknown}");
        let unknown = example::detail(&*unknown);
        assert!(unknown.contains("E_unknownUser"), "{unknown}");
        world
            .signer("ada", &issuer("root"), &["read", "write"])
            .await;
        let found = ask(&find("%")).await.unwrap();
        assert_eq!(&*found.name.local, "businessList");
        let fault = ask("<find_nothing generic='2.0' xmlns='urn:uddi-org:api_v2'/>").await;
        let fault = example::detail(&*fault.unwrap_err());
        assert!(fault.contains("E_"), "{fault}");
        world.node.shutdown().await.unwrap();
    });
}
