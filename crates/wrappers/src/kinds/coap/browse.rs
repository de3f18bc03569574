//! Prints a wrapper's file for a CoAP server: the resources that it lists under `/.well-known/core` (RFC 6690).

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use chappe_machine::{Input, Instant as Moment, Output, drain};
use chappe_stream::name_part;
use coap_lite::link_format::LinkFormatParser;
use tokio::time::timeout;

use super::client::{Client, Event, Pace};
use super::wrapper::{Server, seed};
use crate::WrapperError;
use crate::kinds::browse::run;

/// Where a server lists its resources.
const CORE: &str = "/.well-known/core";
/// Longest time of the request.
const TIME: Duration = Duration::from_secs(20);
/// Most resources of the printed file, as of one wrapper.
const RESOURCES_MAX: usize = 64;
/// Longest datagram.
const DATAGRAM_BYTES: usize = 65_535;

/// The file for `coap://HOST:PORT`.
pub(super) fn browse(address: &str) -> Result<String, WrapperError> {
    let server = Server::parse(address).map_err(|text| {
        WrapperError::settings(text).with_hint("chappe wrapper browse coap://10.0.0.5")
    })?;
    let list = run(async {
        let late = |_| WrapperError::peer(format!("{address} does not answer"));
        timeout(TIME, fetch(server)).await.map_err(late)?
    })?;
    let links = links(&String::from_utf8_lossy(&list));
    if links.is_empty() {
        return Err(WrapperError::peer(format!("{address} lists no resource")));
    }
    Ok(print(address, &links))
}

/// The list of a server.
async fn fetch(server: Server) -> Result<Vec<u8>, WrapperError> {
    let target = server.target(CORE, None).map_err(WrapperError::settings)?;
    let pace = Pace {
        poll: TIME,
        silence: TIME,
    };
    let mut client = Client::new(vec![target], pace, seed()?);
    let socket = server.connect().await?;
    let start = Instant::now();
    let mut input = Input::Timeout;
    let mut buffer = vec![0; DATAGRAM_BYTES];
    loop {
        let (mut events, now) = (Vec::new(), Moment::ZERO + start.elapsed());
        let due = drain(&mut client, now, input, |output| match output {
            Output::Transmit(bytes) => drop(socket.try_send(&bytes)),
            Output::Event(event) => events.push(event),
        });
        for event in events {
            match event {
                Event::State { body, .. } => return Ok(body),
                Event::Problem { text, .. } => return Err(WrapperError::peer(text)),
                Event::Lost { .. } | Event::Working { .. } => {}
            }
        }
        let pause = due.map_or(TIME, |due| due.saturating_since(now));
        input = match timeout(pause, socket.recv(&mut buffer)).await {
            Ok(Ok(count)) => Input::Receive(buffer[..count].to_vec()),
            Ok(Err(error)) => {
                return Err(WrapperError::peer(format!(
                    "the server is not there: {error}"
                )));
            }
            Err(_) => Input::Timeout,
        };
    }
}

/// A resource of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Link {
    path: String,
    content_format: Option<u16>,
    is_observable: bool,
}

/// The resources of a list, except the list itself. A faulty end is left out.
fn links(list: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for (path, attributes) in LinkFormatParser::new(list).map_while(Result::ok) {
        let mut link = Link {
            path: path.to_owned(),
            content_format: None,
            is_observable: false,
        };
        for (name, value) in attributes {
            match name {
                // Several formats may be there, divided by blanks.
                "ct" => {
                    let value = value.to_string();
                    let first = value.split_whitespace().next();
                    link.content_format = first.and_then(|first| first.parse().ok());
                }
                "obs" => link.is_observable = true,
                _ => {}
            }
        }
        let is_plain = link.path.starts_with('/') && !link.path.contains(char::is_control);
        if is_plain && link.path != CORE && links.len() < RESOURCES_MAX {
            links.push(link);
        }
    }
    links
}

fn print(address: &str, links: &[Link]) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let is_any_observable = links.iter().any(|it| it.is_observable);
    // A file has one format: that of the first resource, and only resources of that.
    let chosen = links
        .iter()
        .find(|it| it.is_observable == is_any_observable);
    let content_format = chosen.and_then(|it| it.content_format);
    let (format, comment) = match content_format {
        Some(50) => ("\"json\"", ""),
        Some(110 | 111) => ("\"senml\"", ""),
        _ => (
            "{ regex = { pattern = '(?<value>\\S.*)', whole = true } }",
            "# Text: the first line that is not empty.\n",
        ),
    };
    let mut toml = String::new();
    let _ = writeln!(
        toml,
        "kind = \"coap\"\naddress = {}\nresources = [",
        quoted(address)
    );
    for link in links {
        let is_used =
            link.content_format == content_format && link.is_observable == is_any_observable;
        let note = match (link.is_observable, link.content_format) {
            (true, Some(number)) => format!("observable, content format {number}"),
            (true, None) => "observable".to_owned(),
            (false, Some(number)) => format!("polled, content format {number}"),
            (false, None) => "polled".to_owned(),
        };
        let mark = if is_used { "" } else { "# " };
        let _ = writeln!(toml, "    {mark}{}, # {note}", quoted(&link.path));
    }
    let _ = writeln!(toml, "]\n{comment}format = {format}\n\n[[stream]]");
    let name = chosen.map_or("coap", |it| &it.path);
    let _ = writeln!(toml, "name = {}", quoted(&name_part(name)));
    let _ = writeln!(toml, "fields = [{{ name = \"value\", type = \"text\" }}]");
    toml
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::wrapper_file;
    use proptest::prelude::*;

    #[test]
    fn the_printed_file_is_valid() {
        let list = "</>;title=\"General, \\\"Info\\\"\";ct=0,</time>;if=\"clock\";rt=\"ticks\";ct=0;obs,\
                    </s/t>;obs;ct=\"50 60\",</.well-known/core>;ct=40";
        let found = links(list);
        let paths: Vec<_> = found.iter().map(|it| &*it.path).collect();
        assert_eq!(paths, ["/", "/time", "/s/t"]);
        assert_eq!(found[2].content_format, Some(50));
        let toml = print("coap://10.0.0.5", &found);
        wrapper_file(&toml).kind().unwrap();
        assert!(
            toml.contains("\n    \"/time\"") && toml.contains("# \"/s/t\""),
            "{toml}"
        );
    }

    proptest! {
        #[test]
        fn any_list_gives_a_valid_file(list in "[<>;,=\"\\\\/a-z0-9 %]{0,80}|(</[ -~]{0,9}>;ct=\"?[0-9 ]{0,3}\"?;obs,?){0,4}") {
            let found = links(&list);
            if !found.is_empty() {
                let toml = print("coap://10.0.0.5", &found);
                prop_assert!(toml.parse::<toml::Table>().is_ok(), "{}", toml);
            }
        }
    }
}
