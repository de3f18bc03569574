//! Elements that a node has recorded, and which stream is that of which source.

use std::time::Duration;

use chappe_stream::trial::{ELEMENTS_MAX, TrialStream};
use chappe_stream::{Descriptor, Timestamp};

use crate::command::export::elements::{Elements, schema};
use crate::command::node_client::NodeClient;
use crate::command::query::percent;
use crate::output::Failure;

/// The stream, or the file, of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub alias: String,
    pub stream: String,
}

/// Reads `[ALIAS=]STREAM`, or a file, for each source that is meant.
pub(super) fn written(
    descriptor: &Descriptor,
    texts: &[String],
    flag: &str,
) -> Result<Vec<Wanted>, Failure> {
    let aliases = || descriptor.sources.iter().map(|source| &*source.alias);
    let mut found = Vec::new();
    for text in texts {
        let (alias, stream) = match text.split_once('=') {
            Some((alias, stream)) if aliases().any(|known| known == alias) => {
                (alias.to_owned(), stream)
            }
            Some((alias, _)) => {
                let known = aliases().collect::<Vec<_>>().join(", ");
                let failure = Failure::new(format!("the descriptor has no source {alias:?}"))
                    .coded("argument_invalid");
                return Err(failure.hint(format!("its sources are {known}")));
            }
            None => (only_source(descriptor, flag)?, text.as_str()),
        };
        let stream = stream.to_owned();
        found.push(Wanted { alias, stream });
    }
    Ok(found)
}

/// The streams of all sources: those that are written, and otherwise the one that the descriptor names.
pub(super) fn wanted(
    descriptor: &Descriptor,
    texts: &[String],
    flag: &str,
) -> Result<Vec<Wanted>, Failure> {
    let mut found = written(descriptor, texts, flag)?;
    for source in &descriptor.sources {
        let alias = source.alias.clone();
        if found.iter().any(|one| one.alias == alias) {
            continue;
        }
        let Some(stream) = descriptor.stream_of(&source.selection) else {
            let failure =
                Failure::new(format!("source {alias:?} names no stream")).coded("argument_invalid");
            return Err(failure.hint(format!("add {flag} {alias}=STREAM")));
        };
        found.push(Wanted { alias, stream });
    }
    Ok(found)
}

/// The alias of the source that is meant without one: the only one, or the only one whose stream is not named.
fn only_source(descriptor: &Descriptor, flag: &str) -> Result<String, Failure> {
    if let [only] = &descriptor.sources[..] {
        return Ok(only.alias.clone());
    }
    let unnamed: Vec<_> = descriptor
        .sources
        .iter()
        .filter(|source| descriptor.stream_of(&source.selection).is_none())
        .collect();
    if let [only] = unnamed[..] {
        return Ok(only.alias.clone());
    }
    let aliases = descriptor.sources.iter().map(|source| &*source.alias);
    let aliases = aliases.collect::<Vec<_>>().join(", ");
    let failure =
        Failure::new(format!("the descriptor has the sources {aliases}")).coded("argument_invalid");
    Err(failure.hint(format!("say which one is meant: {flag} ALIAS=...")))
}

/// The start of a range of time that ends with the newest element.
pub(super) fn since(newest: Timestamp, last: Duration) -> Timestamp {
    let last = i64::try_from(last.as_nanos()).unwrap_or(i64::MAX);
    Timestamp(newest.0.saturating_sub(last))
}

/// The failure of a range with too many elements.
pub(super) fn too_many() -> Failure {
    Failure::new(format!("the range has more than {ELEMENTS_MAX} elements"))
        .coded("too_many_elements")
        .hint("choose a shorter one, such as --last 1m")
}

/// Reads the elements of the wanted streams that are newer than `last` before the newest one.
pub(super) async fn read(
    node: &NodeClient,
    wanted: &[Wanted],
    last: Duration,
) -> Result<Vec<TrialStream>, Failure> {
    let mut found = Vec::new();
    for one in wanted {
        let path = format!("/api/v1/streams/{}", percent(&one.stream));
        let described = node.get(&path).await?;
        found.push((one, path, described));
    }
    let times = found
        .iter()
        .filter_map(|(_, _, described)| Timestamp::parse(described["last_time"].as_str()?));
    let from = times.max().map(|newest| since(newest, last).to_string());
    let mut streams = Vec::new();
    let mut count = 0;
    for (one, path, described) in found {
        let schema = schema(&described)?;
        let newest = described["last"].as_u64().unwrap_or(0);
        let mut elements = Elements::new(node, &path, (&from, &None), newest, &schema);
        let mut all = Vec::new();
        while from.is_some()
            && let Some(some) = elements.next().await?
        {
            count += some.len();
            if count > ELEMENTS_MAX {
                return Err(too_many());
            }
            all.extend(some);
        }
        drop(elements);
        streams.push(TrialStream {
            alias: one.alias.clone(),
            stream: one.stream.as_str().into(),
            schema,
            elements: all,
        });
    }
    Ok(streams)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(sources: &[(&str, &str)]) -> Descriptor {
        let sources: String = sources
            .iter()
            .map(|(alias, selection)| format!("[[source]]\nalias = \"{alias}\"\n{selection}\n"))
            .collect();
        let text = format!(
            "name = \"n\"\n{sources}[output]\nsql = \"select 1 as y\"\n\
             [[output.field]]\nname = \"y\"\ntype = \"integer\"\n"
        );
        Descriptor::parse("n.toml", &text).unwrap()
    }

    fn pairs(found: &[Wanted]) -> Vec<(&str, &str)> {
        let pairs = found.iter().map(|it| (&*it.alias, &*it.stream));
        pairs.collect()
    }

    #[test]
    fn streams_belong_to_the_sources_that_are_meant() {
        let query = "query = { name_prefix = \"\" }";
        let texts = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let one = descriptor(&[("a", query)]);
        let found = wanted(&one, &texts(&["s"]), "--on").unwrap();
        assert_eq!(pairs(&found), [("a", "s")]);
        let failure = wanted(&one, &[], "--on").unwrap_err();
        assert!(failure.hint.unwrap().contains("--on a=STREAM"));
        let two = descriptor(&[("a", query), ("b", "stream = \"named\"")]);
        let found = wanted(&two, &texts(&["s"]), "--on").unwrap();
        assert_eq!(pairs(&found), [("a", "s"), ("b", "named")]);
        let found = wanted(&two, &texts(&["b=t", "a=s", "a=u"]), "--on").unwrap();
        assert_eq!(pairs(&found), [("b", "t"), ("a", "s"), ("a", "u")]);
        assert!(wanted(&two, &texts(&["c=t"]), "--on").is_err());
        let open = descriptor(&[("a", query), ("b", query)]);
        let failure = wanted(&open, &texts(&["s"]), "--on").unwrap_err();
        assert!(failure.message.contains("sources a, b"));
    }
}
