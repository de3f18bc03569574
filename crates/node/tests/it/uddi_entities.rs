//! Goal: a business has an address from which HTTP GET has it in XML; and values are checked by the services that the
//! files of value sets name, only at addresses that the node may contact, and never taken unchecked.
//! Method: a node in this process; a service that checks values as a socket with canned answers.

use std::sync::{Arc, Mutex};

use chappe_node::Node;
use chappe_node::config::Read;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::common::{Operated, block, config, get, send};
use crate::uddi::{attribute, code};

/// A tModel that every registry has; here its values are colours.
const COLOURS: &str = "uuid:4E49A8D6-D5A2-4FC2-93A0-0411D8D19E88";

#[test]
fn a_business_has_an_address() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let token = world.publisher("operator", &world.token).await;
        let key = world.business(&token, "Ward 3").await;
        let entity = format!(
            "<businessEntity businessKey='{key}'><discoveryURLs><discoveryURL useType='home'>http://ward/\
             </discoveryURL></discoveryURLs><name>Ward 3</name></businessEntity>"
        );
        let saved = world.publish(&token, "save_business", &entity).await;
        let path = format!("/uddi/get?businessKey={key}");
        let address = format!("http://{}{path}", world.node.address());
        let shown = format!("<discoveryURL useType=\"businessEntity\">{address}</discoveryURL>");
        assert!(saved.body.contains(&shown), "{}", saved.body);
        let inner = format!("<businessKey>{key}</businessKey>");
        let found = world.ask("get_businessDetail", "", &inner).await;
        assert!(found.body.contains(&shown), "{}", found.body);
        let document = get(&world.node, &path).await;
        assert_eq!(document.status, 200, "{}", document.body);
        assert_eq!(document.headers["content-type"], "text/xml; charset=utf-8");
        let start = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><businessDetail ";
        assert!(document.body.starts_with(start), "{}", document.body);
        assert!(document.body.contains(&shown), "{}", document.body);
        // A client that saves what it was given adds no second one.
        let given = found.body.split("<businessEntity ").nth(1).unwrap();
        let given = given.split("</businessEntity>").next().unwrap();
        let entity = format!("<businessEntity {given}</businessEntity>");
        let saved = world.publish(&token, "save_business", &entity).await;
        assert_eq!(saved.status, 200, "{}", saved.body);
        assert_eq!(
            saved.body.matches("<discoveryURL ").count(),
            2,
            "{}",
            saved.body
        );
        // Other entities have such addresses too.
        let service = format!(
            "<businessService serviceKey='' businessKey='{key}'><name>Heart</name></businessService>"
        );
        let saved = world.publish(&token, "save_service", &service).await;
        let service = attribute(&saved.body, "serviceKey");
        for (path, start) in [
            (format!("serviceKey={service}"), "<serviceDetail "),
            (
                "tModelKey=uuid:C1ACF26D-9672-4404-9D70-39B756E62AB4".to_owned(),
                "<tModelDetail ",
            ),
        ] {
            let answer = get(&world.node, &format!("/uddi/get?{path}")).await;
            assert!(answer.body.contains(start), "{}", answer.body);
        }
        for (query, status) in [
            (format!("serviceKey={key}"), 404),
            ("businessKey=x".to_owned(), 404),
            (String::new(), 400),
            (format!("businessKey={key}&serviceKey={service}"), 400),
            (format!("key={key}"), 400),
        ] {
            let answer = get(&world.node, &format!("/uddi/get?{query}")).await;
            assert_eq!(answer.status, status, "{query}: {}", answer.body);
        }
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn the_address_of_a_business_needs_the_role_for_reading() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.access.read = Read::Token;
        let world = Operated::start(&config, None).await;
        let token = world.publisher("operator", &world.token).await;
        let key = world.business(&token, "Ward 3").await;
        let path = format!("/uddi/get?businessKey={key}");
        assert_eq!(get(&world.node, &path).await.status, 401);
        let credential = format!("Bearer {}", world.token);
        let fields = [("Authorization", credential.as_str())];
        assert_eq!(
            send(&world.node, "GET", &path, &fields, b"").await.status,
            200
        );
        world.node.shutdown().await.unwrap();
    });
}

/// What a checker was asked, and what it answers to a value other than `red`: the code of an error.
#[derive(Clone, Default)]
struct Checker {
    asked: Arc<Mutex<Vec<String>>>,
    refusal: Arc<Mutex<String>>,
}

impl Checker {
    async fn serve(self, listener: TcpListener) {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut text = String::new();
            let mut bytes = [0; 4_096];
            // One request has one message, which ends with its envelope.
            while !text.contains("Envelope>") {
                let Ok(count @ 1..) = stream.read(&mut bytes).await else {
                    break;
                };
                text.push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
            let is_red = text.contains("keyValue=\"red\"");
            self.asked.lock().unwrap().push(text);
            let refusal = self.refusal.lock().unwrap().clone();
            let report = |errno: u32, code: &str| {
                format!(
                    "<dispositionReport xmlns='urn:uddi-org:api_v2' generic='2.0' operator='colours'>\
                     <result errno='{errno}'><errInfo errCode='{code}'>as I say</errInfo></result>\
                     </dispositionReport>"
                )
            };
            let (status, body) = match is_red {
                true => (200, report(0, "E_success")),
                false => {
                    let report = report(20200, &refusal);
                    let fault = "<faultcode>s:Client</faultcode><faultstring>x</faultstring>";
                    (
                        500,
                        format!("<s:Fault>{fault}<detail>{report}</detail></s:Fault>"),
                    )
                }
            };
            let body = format!(
                "<s:Envelope xmlns:s='http://schemas.xmlsoap.org/soap/envelope/'><s:Body>{body}</s:Body></s:Envelope>"
            );
            let answer = format!(
                "HTTP/1.1 {status} X\r\nContent-Type: text/xml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    }
}

#[test]
fn services_of_others_check_values() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("taxonomies");
    std::fs::create_dir(&folder).unwrap();
    block(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/check", listener.local_addr().unwrap());
        let file = folder.join(format!("{}.txt", &COLOURS["uuid:".len()..]));
        std::fs::write(file, format!("@categoryBag\n@checker {url}\n")).unwrap();
        let mut config = config(directory.path());
        config.registry.taxonomies_directory = folder;
        // The operator has to allow its address, like that of every other host.
        let mut elsewhere = config.clone();
        elsewhere.data_directory = directory.path().join("refused");
        let refused = Node::start(elsewhere).await.err().unwrap().to_string();
        assert!(refused.contains(&url), "{refused}");
        config.exchange.contact = vec!["127.0.0.0/8".to_owned()];
        let checker = Checker::default();
        let serving = tokio::spawn(checker.clone().serve(listener));
        let world = Operated::start(&config, None).await;
        let token = world.publisher("operator", &world.token).await;
        let reference = |value: &str| {
            format!(
                "<categoryBag><keyedReference keyValue='{value}' tModelKey='{COLOURS}'/></categoryBag>"
            )
        };
        let business = |value: &str| {
            let bag = reference(value);
            format!("<businessEntity businessKey=''><name>Ward</name>{bag}</businessEntity>")
        };
        let save = async |entity: &str| world.publish(&token, "save_business", entity).await;
        let saved = save(&business("red")).await;
        assert_eq!(saved.status, 200, "{}", saved.body);
        let asked = checker.asked.lock().unwrap().pop().unwrap();
        assert!(asked.starts_with("POST /check HTTP/1.1"), "{asked}");
        assert!(
            asked
                .to_lowercase()
                .contains("soapaction: \"validate_values\""),
            "{asked}"
        );
        assert!(asked.contains("<validate_values"), "{asked}");
        // Entities without such a reference are nobody else's business.
        assert_eq!(
            save("<businessEntity businessKey=''><name>x</name></businessEntity>")
                .await
                .status,
            200
        );
        assert_eq!(checker.asked.lock().unwrap().len(), 0);
        for (refusal, expected) in [
            ("E_invalidValue", "E_invalidValue"),
            ("E_valueNotAllowed", "E_valueNotAllowed"),
            ("E_busy", "E_unvalidatable"),
        ] {
            refusal.clone_into(&mut checker.refusal.lock().unwrap());
            let answer = save(&business("mauve")).await;
            assert_eq!(code(&answer), expected);
            assert!(answer.body.contains("as I say"), "{}", answer.body);
        }
        let validated = world.ask("validate_values", "", &business("mauve")).await;
        assert_eq!(code(&validated), "E_unvalidatable");
        let validated = world.ask("validate_values", "", &business("red")).await;
        assert_eq!(attribute(&validated.body, "errCode"), "E_success");
        // A stranger makes the node ask nobody.
        checker.asked.lock().unwrap().clear();
        let stranger = world
            .publish("none", "save_business", &business("red"))
            .await;
        assert_eq!(code(&stranger), "E_authTokenRequired");
        assert_eq!(checker.asked.lock().unwrap().len(), 0);
        // Away, it fails the request, which is recorded.
        serving.abort();
        let _ = serving.await;
        let answer = save(&business("red")).await;
        assert_eq!(code(&answer), "E_requestTimeout");
        assert!(answer.body.contains("is away"), "{}", answer.body);
        let found = world.ask("find_business", "", "<name>ward</name>").await;
        assert_eq!(
            found.body.matches("<businessInfo ").count(),
            1,
            "{}",
            found.body
        );
        let metrics = get(&world.node, "/metrics").await.body;
        assert!(metrics.contains("checker failed"), "{metrics}");
        world.node.shutdown().await.unwrap();
    });
}
