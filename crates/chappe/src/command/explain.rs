//! `chappe explain`: the cause and the remedy of a code.

use chappe_node::config::nearest;
use chappe_transport::codes::{self, Explanation};
use serde_json::{Value, json};

use crate::cli::Explain;
use crate::output::{self, Failure, Outcome, Table};

/// Most codes that a hint names; reason: one line.
const HINTS_MAX: usize = 5;

/// Prints one code, or all with their titles.
pub(crate) fn run(flags: &Explain, json: bool) -> Outcome {
    let Some(wanted) = &flags.code else {
        list(json);
        return Ok(());
    };
    let found = codes::find(wanted).ok_or_else(|| unknown(wanted))?;
    match json {
        true => output::json(&shown(&found)),
        false => output::line(format_args!(
            "{}: {}\n\n{}\n\nRemedy: {}",
            found.code, found.title, found.cause, found.remedy
        )),
    }
    Ok(())
}

fn list(json: bool) {
    if json {
        output::json(&codes::all().map(|one| shown(&one)).collect::<Vec<_>>());
        return;
    }
    let mut table = Table::new(["CODE", "TITLE"]);
    for one in codes::all() {
        table.row([one.code.to_owned(), one.title.to_owned()]);
    }
    output::line(table);
}

fn shown(one: &Explanation) -> Value {
    json!({
        "code": one.code, "title": one.title, "cause": one.cause, "remedy": one.remedy,
        "section": one.section, "page": one.address(),
    })
}

/// The error of an unknown code, with the codes that contain the word, or else the nearest one.
fn unknown(wanted: &str) -> Failure {
    let code = codes::of(wanted);
    let known = || codes::all().map(|one| one.code);
    let with_word = || known().filter(|one| !code.is_empty() && one.contains(code.as_str()));
    let hint = match nearest(&code, known()) {
        _ if with_word().next().is_some() => {
            let some: Vec<_> = with_word().take(HINTS_MAX).collect();
            format!("codes with this word: {}", some.join(", "))
        }
        Some(near) => format!("did you mean {near}?"),
        None => "list all codes: chappe explain".to_owned(),
    };
    let failure = Failure::new(format!("{wanted:?} is not a code"));
    failure.coded("argument_invalid").hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_name_commands_that_exist() {
        let cli = <crate::cli::Cli as clap::CommandFactory>::command();
        let texts = codes::all().flat_map(|one| [(one.code, one.cause), (one.code, one.remedy)]);
        let mut seen = 0;
        for (code, text) in texts {
            let quoted = text.split('`').skip(1).step_by(2);
            for command in quoted.filter_map(|quoted| quoted.strip_prefix("chappe ")) {
                let mut at = &cli;
                let is_letter = |it: u8| it.is_ascii_lowercase() || it == b'-';
                let is_verb = |word: &&str| !word.starts_with('-') && word.bytes().all(is_letter);
                for word in command.split_whitespace().take_while(is_verb) {
                    if !at.has_subcommands() {
                        break;
                    }
                    let found = at.find_subcommand(word);
                    assert!(found.is_some(), "{code}: chappe {command}");
                    at = found.unwrap();
                }
                seen += 1;
            }
        }
        assert!(seen > 20, "{seen}");
    }

    #[test]
    fn an_unknown_code_names_the_nearest() {
        for (wanted, hint) in [
            ("held_by_othr", "did you mean held_by_other?"),
            ("Held by ohter", "did you mean held_by_other?"),
            (
                "multicast",
                "codes with this word: no_multicast, multicast_dns",
            ),
            ("zebra", "list all codes: chappe explain"),
            ("", "list all codes: chappe explain"),
        ] {
            let failure = unknown(wanted);
            assert_eq!(failure.hint.as_deref(), Some(hint), "{wanted}");
            assert_eq!(failure.code, 2);
        }
    }
}
