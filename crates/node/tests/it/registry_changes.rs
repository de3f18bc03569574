//! Goal: a client that follows an entity, a search or a query over server-sent events hears of each change
//! that it may see, resumes after a restart of the node, and hears no more when its rights end.
//! Method: entities published over REST by two accounts, and clients that connect again.

use serde_json::{Value, json};

use crate::common::{Event, Live, Operated, block, config, get};

const CHANGES: &str = "/api/v1/registry/changes";

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

async fn publish(operated: &Operated, number: u32, name: &str, limit: u32) {
    let body = json!({"key": format!("urn:x:{number}"), "kind": "device", "name": name,
        "triples": [{"predicate": "urn:limit", "object": limit.to_string()}]});
    let answer = operated.change("POST", "/api/v1/entities", &body).await;
    assert!([200, 201].contains(&answer.status), "{}", answer.body);
}

fn data(event: &Event) -> Value {
    serde_json::from_str(&event.data).unwrap()
}

async fn follow(operated: &Operated, query: &str, last_event: &str) -> Live {
    let last = match last_event {
        "" => String::new(),
        id => format!("Last-Event-ID: {id}\r\n"),
    };
    let path = format!("{CHANGES}?{query}");
    let opened = Live::open_path(&operated.node, &path, &last).await;
    opened.expect("it is let in")
}

#[test]
fn a_client_follows_what_it_asked_for_across_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    block(async {
        let operated = Operated::start(&config, None).await;
        publish(&operated, 1, "Pump one", 1).await;
        let mut live = follow(&operated, "prefix=pump&present=true", "").await;
        assert_eq!(live.next().await.unwrap().event, "resync");
        let added = data(&live.next_of("added").await);
        assert_eq!(
            (&added["key"], &added["kind"]),
            (&json!("urn:x:1"), &json!("device"))
        );
        assert_eq!(added["name"], "Pump one");
        assert_eq!(live.next().await.unwrap().event, "synced");
        publish(&operated, 2, "Monitor", 1).await;
        publish(&operated, 2, "Pump two", 1).await;
        publish(&operated, 1, "Pump one", 2).await;
        let added = live.next().await.unwrap();
        assert_eq!(
            (added.event.as_str(), &data(&added)["name"]),
            ("added", &json!("Pump two"))
        );
        let changed = live.next().await.unwrap();
        assert_eq!(changed.event, "changed");
        assert!(data(&changed)["position"].as_u64() > data(&added)["position"].as_u64());
        drop(live);
        // Away, while one goes and the node is restarted.
        let removed = operated
            .change("DELETE", "/api/v1/entities/urn:x:1", &json!(null))
            .await;
        assert_eq!(removed.status, 204, "{}", removed.body);
        operated.node.shutdown().await.unwrap();
        let operated = Operated::start(&config, Some(operated.token)).await;
        let mut live = follow(&operated, "prefix=pump", &changed.id).await;
        let event = live.next().await.unwrap();
        assert_eq!(event.event, "removed");
        assert_eq!(data(&event)["key"], "urn:x:1");
        assert_eq!(data(&event)["name"], "Pump one");
        // The key of one entity, by the parameter.
        let mut one = follow(&operated, &format!("key=urn:x:2&after={}", event.id), "").await;
        publish(&operated, 2, "Pump two again", 1).await;
        assert_eq!(data(&one.next().await.unwrap())["name"], "Pump two again");
        // An id from the future of this journal.
        let mut lost = follow(&operated, "prefix=pump", "999999").await;
        let event = lost.next().await.unwrap();
        assert_eq!(
            (event.event.as_str(), &data(&event)["reason"]),
            ("resync", &json!("too-old"))
        );
        for (query, status) in [
            ("key=urn:x:1&prefix=a", 400),
            ("query=SELECT", 400),
            ("kind=nothing", 400),
            ("after=x", 400),
            ("unknown=x", 400),
        ] {
            let answer = get(&operated.node, &format!("{CHANGES}?{query}")).await;
            assert_eq!(answer.status, status, "{query}: {}", answer.body);
        }
        drop((live, one, lost));
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_client_follows_the_rows_of_a_query() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    block(async {
        let operated = Operated::start(&config, None).await;
        publish(&operated, 1, "one", 7).await;
        let query = "query=SELECT%20?x%20WHERE%20%7B?x%20%3Curn:limit%3E%20%227%22%7D";
        let mut live = follow(&operated, &format!("{query}&present=true"), "").await;
        assert_eq!(live.next().await.unwrap().event, "resync");
        let row = data(&live.next_of("added").await);
        assert_eq!(row["row"]["x"], json!({"type": "uri", "value": "urn:x:1"}));
        let synced = live.next().await.unwrap();
        assert_eq!(synced.event, "synced");
        publish(&operated, 1, "one", 8).await;
        let event = live.next().await.unwrap();
        assert_eq!(event.event, "removed");
        assert_eq!(data(&event)["row"]["x"]["value"], "urn:x:1");
        drop(live);
        // Nothing changed since, then the answer did.
        let (mut id, mut number) = (event.id.clone(), 2);
        loop {
            let mut same = follow(&operated, query, &id).await;
            publish(&operated, number, "two", 7).await;
            let told = same.next().await.unwrap();
            if told.event != "resync" {
                let key = format!("urn:x:{number}");
                assert_eq!(data(&told)["row"]["x"]["value"], key);
                break;
            }
            // It was published before the query was evaluated for the first time.
            assert!(number < 20, "{told:?}");
            (id, number) = (told.id, number + 1);
        }
        let mut old = follow(&operated, query, &event.id).await;
        let event = old.next().await.unwrap();
        assert_eq!(data(&event)["reason"], "answer-changed");
        drop(old);
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_subscription_ends_with_the_account_and_an_account_has_its_share_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.http.max_live_clients = 4;
    block(async {
        let operated = Operated::start(&config, None).await;
        let token = operated.account("ada", &["read"]).await;
        let path = format!("{CHANGES}?prefix=p");
        let share = json!({"requests_percent": 50});
        let set = operated
            .change("PUT", "/api/v1/accounts/ada/share", &share)
            .await;
        assert_eq!(set.status, 200, "{}", set.body);
        let opened = Live::open_path(&operated.node, &path, &bearer(&token)).await;
        let mut live = opened.unwrap();
        let second = Live::open_path(&operated.node, &path, &bearer(&token))
            .await
            .unwrap();
        let field = [("Authorization", format!("Bearer {token}"))];
        let fields = field
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        let third = crate::common::send(&operated.node, "GET", &path, &fields, b"").await;
        assert_eq!(third.status, 429, "{}", third.body);
        drop(second);
        publish(&operated, 1, "pump", 1).await;
        assert_eq!(live.next().await.unwrap().event, "added");
        let gone = operated
            .change("DELETE", "/api/v1/accounts/ada", &json!(null))
            .await;
        assert_eq!(gone.status, 204, "{}", gone.body);
        let event = live.next().await.unwrap();
        assert_eq!(event.event, "end");
        assert_eq!(data(&event)["reason"], "the account has ended");
        assert!(live.next().await.is_none(), "the connection is closed");
        operated.node.shutdown().await.unwrap();
    });
}

/// An HTTP server that accepts messages and hands them over.
pub(crate) async fn receiver() -> (String, tokio::sync::mpsc::Receiver<String>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/sink", listener.local_addr().unwrap());
    let (sender, receiver) = tokio::sync::mpsc::channel(64);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut text = String::new();
                let mut part = [0; 4_096];
                while let Ok(read) = stream.read(&mut part).await
                    && read > 0
                {
                    text.push_str(std::str::from_utf8(&part[..read]).unwrap());
                    while let Some(length) = message_length(&text)
                        && text.len() >= length
                    {
                        let rest = text.split_off(length);
                        let message = std::mem::replace(&mut text, rest);
                        let answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
                        stream.write_all(answer).await.unwrap();
                        let _ = sender.send(message).await;
                    }
                }
            });
        }
    });
    (address, receiver)
}

/// The length of a request with its body, once its head is there.
fn message_length(text: &str) -> Option<usize> {
    let (head, _) = text.split_once("\r\n\r\n")?;
    let head_lower = head.to_ascii_lowercase();
    let length = head_lower.split("content-length:").nth(1)?;
    let length: usize = length.lines().next()?.trim().parse().ok()?;
    Some(head.len() + 4 + length)
}

const EVENTING: &str = "http://schemas.xmlsoap.org/ws/2004/08/eventing";

pub(crate) fn envelope(action: &str, to: &str, body: &str) -> String {
    format!(
        "<s:Envelope xmlns:s='http://www.w3.org/2003/05/soap-envelope' \
         xmlns:a='http://www.w3.org/2005/08/addressing' xmlns:e='{EVENTING}'><s:Header>\
         <a:Action>{EVENTING}/{action}</a:Action><a:MessageID>urn:uuid:{action}</a:MessageID>\
         <a:To>{to}</a:To></s:Header><s:Body>{body}</s:Body></s:Envelope>"
    )
}

async fn soap(operated: &Operated, path: &str, action: &str, body: &str) -> crate::common::Answer {
    let text = envelope(action, path, body);
    let fields = [("Content-Type", "application/soap+xml")];
    crate::common::send(&operated.node, "POST", path, &fields, text.as_bytes()).await
}

pub(crate) fn subscribe(notify_to: &str, end_to: &str) -> String {
    format!(
        "<e:Subscribe><e:EndTo><a:Address>{end_to}</a:Address></e:EndTo><e:Delivery>\
         <e:NotifyTo><a:Address>{notify_to}</a:Address></e:NotifyTo></e:Delivery>\
         <e:Expires>PT10M</e:Expires></e:Subscribe>"
    )
}

/// The path of the subscription manager in an answer to Subscribe.
pub(crate) fn manager(answer: &str) -> String {
    let (_, rest) = answer.split_once("/registry/subscriptions/").unwrap();
    format!(
        "/registry/subscriptions/{}",
        rest.split('<').next().unwrap()
    )
}

#[test]
fn a_subscription_by_ws_eventing_outlives_the_node() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.discovery.contact = vec!["127.0.0.1/32".into()];
    block(async {
        let operated = Operated::start(&config, None).await;
        let source = "/registry/events?prefix=pump";
        let (sink, mut messages) = receiver().await;
        let mut managers = Vec::new();
        for _ in 0..2 {
            let answer = soap(&operated, source, "Subscribe", &subscribe(&sink, &sink)).await;
            assert_eq!(answer.status, 200, "{}", answer.body);
            managers.push(manager(&answer.body));
        }
        publish(&operated, 1, "Pump one", 1).await;
        for _ in 0..2 {
            assert!(messages.recv().await.unwrap().contains("urn:x:1"));
        }
        let ended = soap(&operated, &managers[0], "Unsubscribe", "<e:Unsubscribe/>").await;
        assert_eq!(ended.status, 200, "{}", ended.body);
        let token = operated.token.clone();
        operated.node.shutdown().await.unwrap();
        let operated = Operated::start(&config, Some(token.clone())).await;
        let status = soap(&operated, &managers[1], "GetStatus", "<e:GetStatus/>").await;
        assert!(status.body.contains("Expires"), "{}", status.body);
        let gone = soap(&operated, &managers[0], "GetStatus", "<e:GetStatus/>").await;
        assert_eq!(gone.status, 400, "{}", gone.body);
        publish(&operated, 2, "Pump two", 1).await;
        let message = messages.recv().await.unwrap();
        assert!(
            message.contains("urn:x:2"),
            "not the end, and nothing twice: {message}"
        );
        operated.node.shutdown().await.unwrap();
        // Who may not read any more hears nothing.
        config.access.read = chappe_node::config::Read::Token;
        let operated = Operated::start(&config, Some(token)).await;
        let gone = soap(&operated, &managers[1], "GetStatus", "<e:GetStatus/>").await;
        assert_eq!(gone.status, 404, "{}", gone.body);
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn headers_of_ws_eventing_that_cannot_be_honoured_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.discovery.contact = vec!["127.0.0.1/32".into()];
    block(async {
        let operated = Operated::start(&config, None).await;
        let (sink, _messages) = receiver().await;
        let role = "http://www.w3.org/2003/05/soap-envelope/role";
        let mandatory = |role: &str| {
            format!("<z:h xmlns:z='urn:z' s:mustUnderstand='true' s:role='{role}'/></s:Header>")
        };
        let elsewhere = |header: &str| {
            format!("<a:{header}><a:Address>{sink}</a:Address></a:{header}></s:Header>")
        };
        let source = "/registry/events?prefix=pump";
        let ask = async |headers: String| {
            let text = envelope("Subscribe", source, &subscribe(&sink, &sink));
            let text = text.replace("</s:Header>", &headers);
            let fields = [("Content-Type", "application/soap+xml")];
            crate::common::send(&operated.node, "POST", source, &fields, text.as_bytes()).await
        };
        for of in ["next", "ultimateReceiver"] {
            let refused = ask(mandatory(&format!("{role}/{of}"))).await;
            assert_eq!(refused.status, 500, "{}", refused.body);
            assert!(refused.body.contains("MustUnderstand"), "{}", refused.body);
            assert!(refused.body.contains("NotUnderstood"), "{}", refused.body);
        }
        for header in ["ReplyTo", "FaultTo"] {
            let refused = ask(elsewhere(header)).await;
            assert_eq!(refused.status, 400, "{}", refused.body);
            let names_it = refused.body.contains("InvalidAddressingHeader");
            assert!(names_it, "{}", refused.body);
        }
        let other_role = ask(mandatory(&format!("{role}/none"))).await;
        assert_eq!(other_role.status, 200, "{}", other_role.body);
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_program_subscribes_by_ws_eventing() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.discovery.contact = vec!["127.0.0.1/32".into()];
    block(async {
        let operated = Operated::start(&config, None).await;
        let source = "/registry/events?prefix=pump";
        let (sink, mut messages) = receiver().await;
        let answer = soap(&operated, source, "Subscribe", &subscribe(&sink, &sink)).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(answer.body.contains("SubscribeResponse"), "{}", answer.body);
        let manager = manager(&answer.body);
        // An address that the policy refuses.
        let elsewhere = subscribe("http://192.0.2.1/sink", &sink);
        let refused = soap(&operated, source, "Subscribe", &elsewhere).await;
        assert_eq!(refused.status, 400, "{}", refused.body);
        assert!(refused.body.contains("NotifyTo"), "{}", refused.body);
        publish(&operated, 1, "Monitor", 1).await;
        publish(&operated, 2, "Pump two", 1).await;
        publish(&operated, 2, "Pump two", 2).await;
        let removed = operated
            .change("DELETE", "/api/v1/entities/urn:x:2", &json!(null))
            .await;
        assert_eq!(removed.status, 204);
        let mut kinds = Vec::new();
        for _ in 0..3 {
            let message = messages.recv().await.unwrap();
            assert!(message.contains("urn:x:2"), "{message}");
            let kind = ["Added", "Changed", "Removed"];
            kinds.extend(kind.into_iter().find(|kind| {
                message.contains(&format!("https://chappe.example/ns/registry/{kind}"))
            }));
        }
        assert_eq!(kinds, ["Added", "Changed", "Removed"], "in order");
        let status = soap(&operated, &manager, "GetStatus", "<e:GetStatus/>").await;
        assert!(status.body.contains("Expires"), "{}", status.body);
        let renewal = "<e:Renew><e:Expires>PT20M</e:Expires></e:Renew>";
        let renewed = soap(&operated, &manager, "Renew", renewal).await;
        assert!(renewed.body.contains("RenewResponse"), "{}", renewed.body);
        let ended = soap(&operated, &manager, "Unsubscribe", "<e:Unsubscribe/>").await;
        assert_eq!(ended.status, 200, "{}", ended.body);
        let unknown = soap(&operated, &manager, "GetStatus", "<e:GetStatus/>").await;
        assert!(
            [400, 404, 500].contains(&unknown.status),
            "{}",
            unknown.body
        );
        // A receiver that is dead: its subscription ends, and EndTo hears of it.
        let closed = {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            format!("http://{}/sink", listener.local_addr().unwrap())
        };
        let answer = soap(&operated, source, "Subscribe", &subscribe(&closed, &sink)).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        publish(&operated, 3, "Pump three", 1).await;
        let end = messages.recv().await.unwrap();
        assert!(end.contains("SubscriptionEnd"), "{end}");
        assert!(end.contains("DeliveryFailure"), "{end}");
        let wrong = get(&operated.node, source).await;
        assert_eq!(wrong.status, 405);
        // What only server-sent events can do is refused, and not left out silently.
        for parameter in ["inferred=true", "present=true", "after=1-2"] {
            let path = format!("{source}&{parameter}");
            let refused = soap(&operated, &path, "Subscribe", &subscribe(&sink, &sink)).await;
            assert_eq!(refused.status, 400, "{}", refused.body);
            let name = parameter.split('=').next().unwrap();
            assert!(refused.body.contains(name), "{}", refused.body);
        }
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn an_entity_with_a_lease_is_removed_unless_its_lease_is_renewed() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    block(async {
        let operated = Operated::start(&config, None).await;
        let mut live = follow(&operated, "prefix=leased", "").await;
        let leased = |number: u32, lease_s: u32| json!({"key": format!("urn:x:{number}"), "name": "leased", "lease_s": lease_s});
        for (number, lease_s) in [(1, 1), (2, 3_600)] {
            let body = leased(number, lease_s);
            let answer = operated.change("POST", "/api/v1/entities", &body).await;
            assert_eq!(answer.status, 201, "{}", answer.body);
            assert_eq!(answer.json()["lease_s"], lease_s);
            assert_eq!(live.next().await.unwrap().event, "added");
        }
        let renewed = operated
            .change("POST", "/api/v1/entities/urn:x:2/renew", &json!(null))
            .await;
        assert_eq!(renewed.json(), json!({"key": "urn:x:2", "lease_s": 3_600}));
        // Published again, unchanged: that renews it, too.
        let same = operated
            .change("POST", "/api/v1/entities", &leased(2, 3_600))
            .await;
        assert_eq!(same.status, 200, "{}", same.body);
        // The subscriber hears of the end of the other, and not of renewals.
        let event = live.next().await.unwrap();
        assert_eq!(
            (event.event.as_str(), &data(&event)["key"]),
            ("removed", &json!("urn:x:1"))
        );
        assert_eq!(
            get(&operated.node, "/api/v1/entities/urn:x:1").await.status,
            404
        );
        publish(&operated, 4, "stays", 1).await;
        for (path, status) in [
            ("/api/v1/entities/urn:x:1/renew", 404),
            ("/api/v1/entities/urn:x:4/renew", 409),
        ] {
            let answer = operated.change("POST", path, &json!(null)).await;
            assert_eq!(answer.status, status, "{}", answer.body);
        }
        let token = operated.account("ada", &["write"]).await;
        let field = [("Authorization", format!("Bearer {token}"))];
        let fields = field
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        let path = "/api/v1/entities/urn:x:2/renew";
        let other = crate::common::send(&operated.node, "POST", path, &fields, b"").await;
        assert_eq!(other.status, 409, "{}", other.body);
        let invalid = operated
            .change("POST", "/api/v1/entities", &leased(5, 0))
            .await;
        assert_eq!(invalid.status, 422, "{}", invalid.body);
        drop(live);
        operated.node.shutdown().await.unwrap();
    });
}

/// An SMTP server that takes every mail and hands over its text.
#[cfg(feature = "mail")]
async fn mail_server() -> (u16, tokio::sync::mpsc::Receiver<String>) {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sender, receiver) = tokio::sync::mpsc::channel(64);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (read, mut write) = stream.into_split();
            let mut lines = BufReader::new(read).lines();
            write.write_all(b"220 test\r\n").await.unwrap();
            let (mut text, mut is_data) = (String::new(), false);
            while let Ok(Some(line)) = lines.next_line().await {
                let answer = match line.as_str() {
                    "." if is_data => {
                        is_data = false;
                        sender.send(std::mem::take(&mut text)).await.unwrap();
                        "250 taken"
                    }
                    _ if is_data => {
                        text.push_str(&line);
                        text.push('\n');
                        continue;
                    }
                    "DATA" => {
                        is_data = true;
                        "354 go on"
                    }
                    "QUIT" => "221 bye",
                    _ => "250 fine",
                };
                let answer = format!("{answer}\r\n");
                if write.write_all(answer.as_bytes()).await.is_err() {
                    break;
                }
            }
        }
    });
    (port, receiver)
}

#[cfg(feature = "mail")]
#[test]
fn a_subscriber_gets_one_mail_for_the_changes_of_a_while_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    block(async {
        let (port, mut mails) = mail_server().await;
        config.mail.server = "127.0.0.1".into();
        config.mail.port = port;
        config.mail.encryption = chappe_node::config::MailEncryption::None;
        config.mail.sender = "chappe@example.org".into();
        config.mail.recipients = vec!["@example.org".into()];
        config.mail.bundle_s = 1;
        let operated = Operated::start(&config, None).await;
        let path = "/api/v1/registry/subscriptions";
        for (body, status) in [
            (json!({"mail": "ops@example.com", "prefix": "pump"}), 403),
            (json!({"mail": "ops", "prefix": "pump"}), 422),
            (json!({"mail": "ops@example.org", "lease_s": 0}), 422),
            (
                json!({"mail": "ops@example.org", "key": "urn:x:1", "prefix": "a"}),
                422,
            ),
            (json!({"mail": "ops@example.org", "query": "SELECT"}), 400),
        ] {
            let answer = operated.change("POST", path, &body).await;
            assert_eq!(answer.status, status, "{body}: {}", answer.body);
        }
        let anonymous = crate::common::send(&operated.node, "POST", path, &[], b"{}").await;
        assert_eq!(anonymous.status, 401, "{}", anonymous.body);
        let body = json!({"mail": "ops@example.org", "prefix": "pump"});
        let made = operated.change("POST", path, &body).await;
        assert_eq!(made.status, 201, "{}", made.body);
        let id = made.json()["id"].as_str().unwrap().to_owned();
        publish(&operated, 1, "Pump one", 1).await;
        publish(&operated, 2, "Pump\ntwo", 1).await;
        publish(&operated, 3, "Monitor", 1).await;
        let mail = mails.recv().await.unwrap();
        assert!(mail.contains("2 changes"), "{mail}");
        assert!(mail.contains("added: Pump one <urn:x:1>"), "{mail}");
        assert!(mail.contains("added: Pump two <urn:x:2>"), "{mail}");
        assert!(!mail.contains("Monitor"), "{mail}");
        // What follows is sent after a restart.
        operated.node.shutdown().await.unwrap();
        let operated = Operated::start(&config, Some(operated.token)).await;
        publish(&operated, 1, "Pump one", 2).await;
        // The mail before comes again if the node stopped before it had noted it.
        while !mails
            .recv()
            .await
            .unwrap()
            .contains("changed: Pump one <urn:x:1>")
        {}
        let list = operated.change("GET", path, &json!(null)).await;
        assert_eq!(list.json()["subscriptions"][0]["id"], json!(id));
        let renewed = operated
            .change(
                "POST",
                &format!("{path}/{id}/renew"),
                &json!({"lease_s": 60}),
            )
            .await;
        assert_eq!(renewed.status, 204, "{}", renewed.body);
        let removed = operated
            .change("DELETE", &format!("{path}/{id}"), &json!(null))
            .await;
        assert_eq!(removed.status, 204, "{}", removed.body);
        let again = operated
            .change("DELETE", &format!("{path}/{id}"), &json!(null))
            .await;
        assert_eq!(again.status, 404, "{}", again.body);
        operated.node.shutdown().await.unwrap();
    });
}

/// The requests of docs/reference/notifications.md, in its order: the path that is followed, and the bodies.
#[test]
fn the_examples_of_the_page_work() {
    let page = include_str!("../../../../docs/reference/notifications.md");
    let part = |from: &str, to: char| {
        let (_, rest) = page.split_once(from).unwrap();
        rest.split(to).next().unwrap().to_owned()
    };
    let path = part("curl -N 'http://127.0.0.1:8470", '\'');
    let leased = format!("{{\"key\"{}", part("-d '{\"key\"", '\''));
    let leased: Value = serde_json::from_str(&leased).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    block(async {
        let operated = Operated::start(&config, None).await;
        publish(&operated, 1, "Pump one", 1).await;
        let opened = Live::open_path(&operated.node, &path, "").await;
        let mut live = opened.unwrap();
        let mut heard = Vec::new();
        for event in ["resync", "added", "synced"] {
            let next = live.next().await.unwrap();
            assert_eq!(next.event, event);
            heard.push(data(&next));
        }
        let shown: Vec<Value> = page
            .lines()
            .filter_map(|line| line.trim().strip_prefix("data: "))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for (heard, shown) in heard.iter_mut().zip(&shown) {
            heard["position"] = shown["position"].clone();
            assert_eq!(heard, shown);
        }
        let key = leased["key"].as_str().unwrap();
        let answer = operated.change("POST", "/api/v1/entities", &leased).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(live.next().await.unwrap().event, "changed");
        let renewal = format!("/api/v1/entities/{key}/renew");
        assert!(page.contains(&renewal), "{renewal}");
        let renewed = operated.change("POST", &renewal, &json!(null)).await;
        assert_eq!(renewed.status, 200, "{}", renewed.body);
        drop(live);
        operated.node.shutdown().await.unwrap();
    });
}
