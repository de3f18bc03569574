//! The command line of `chappe account`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::NodeAddress;

/// Verbs of `account`.
#[derive(Debug, Subcommand)]
pub(crate) enum Account {
    /// Add an account, and print its token.
    #[command(
        after_help = "Examples:\n  chappe account add ada --role operate\n  chappe account add logger --role 'write=lab.*' --token-file logger.token\n  chappe account add ward --role 'read=ward.*,sdc.ctxt.loc:/ward' --expires 2027-01-01T00:00:00Z\n  chappe account add gateway --role read --certificate 'CN=gateway,O=Ward 3'\n\nRoles: read; write (streams, elements, entities); operate (sensors, links, removal; includes read);\nadminister (accounts and everything else). `=` restricts a role to streams, prefixes and scopes.\nThe token is shown once: the node stores its hash."
    )]
    Add(AccountAdd),
    /// List the accounts with their roles.
    #[command(after_help = "Examples:\n  chappe account list\n  chappe account list --json")]
    List(AccountList),
    /// Show an account: its roles, its shares of the node, and its usage.
    #[command(
        after_help = "Examples:\n  chappe account show logger\n  chappe account show logger --json"
    )]
    Show(AccountShow),
    /// Set an account's shares of the node, so that it cannot crowd out the others.
    #[command(
        after_help = "Examples:\n  chappe account share logger bytes=40\n  chappe account share logger bytes=40,streams=10,requests=20\n  chappe account share logger default\n\nShares are percentages: of log.max_bytes, which the account's streams keep while others need the\nroom, and of registry.max_bytes; of log.max_streams, and of the room for their definitions; and of\nthe concurrent requests of each kind (queries, live data, links, writes). A share that is not\nnamed follows [accounts] in the node's configuration. Administrators have none."
    )]
    Share(AccountShare),
    /// Set the groups that an account is in; rights to entities may name a group.
    #[command(
        after_help = "Examples:\n  chappe account groups ada ward-3,lab\n  chappe account groups ada none\n\nRights to entities of the registry name groups as group:ward-3. The open connections of the\naccount end."
    )]
    Groups(AccountGroups),
    /// Give an account a new token, and print it; the old one is no longer valid.
    #[command(
        after_help = "Examples:\n  chappe account renew ada\n  chappe account renew logger --token-file logger.token"
    )]
    Renew(AccountRenew),
    /// Revoke an account: its credentials are no longer valid.
    #[command(
        after_help = "Examples:\n  chappe account revoke ada\n  chappe account revoke ada --forget\n\nIts open connections end. A revoked account stays listed, so that its name, which owns entities and\nappears in the audit stream, is not reused by accident."
    )]
    Revoke(AccountRevoke),
}

/// Flags of `account add`.
#[derive(Debug, Args)]
pub(crate) struct AccountAdd {
    /// Name of the account: letters, digits, `.`, `_`, `-` and `@`.
    pub name: String,
    /// A role: read, write, operate or administer; may be repeated.
    ///
    /// `read=ward.*,lab.pulse,sdc.ctxt.loc:/ward` restricts it to streams, prefixes that end in `*`, and
    /// scopes of devices.
    #[arg(long = "role", required = true, value_name = "ROLE[=STREAMS]")]
    pub roles: Vec<String>,
    /// The subject of its certificate (RFC 4514), or its fingerprint (sha256:...), instead of a token.
    ///
    /// 'SUBJECT;issuer=ISSUER' also names the authority that must have signed it.
    #[arg(long, value_name = "NAME")]
    pub certificate: Option<String>,
    /// A group that it is in; may be repeated.
    #[arg(long = "group", value_name = "GROUP")]
    pub groups: Vec<String>,
    /// The public key of a node that reads over ZeroMQ, as `chappe key show` prints it there, instead of a
    /// token.
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub key: Option<String>,
    /// Also create a token, with --certificate or --key.
    #[arg(long, hide_short_help = true)]
    pub with_token: bool,
    /// The time from which its credentials are no longer accepted (RFC 3339).
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,
    /// Its shares of the node in percent, where they differ from the configured ones; see `account share`.
    #[arg(long, value_name = "bytes=N,streams=N,requests=N", value_parser = share, hide_short_help = true)]
    pub share: Option<Share>,
    /// Write the token to this new file, readable by its owner only, instead of printing it.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `account list`.
#[derive(Debug, Args)]
pub(crate) struct AccountList {
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `account show`.
#[derive(Debug, Args)]
pub(crate) struct AccountShow {
    /// The account.
    pub name: String,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `account share`.
#[derive(Debug, Args)]
pub(crate) struct AccountShare {
    /// The account.
    pub name: String,
    /// Its shares in percent, or `default`.
    #[arg(value_name = "bytes=N,streams=N,requests=N", value_parser = share)]
    pub share: Share,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `account groups`.
#[derive(Debug, Args)]
pub(crate) struct AccountGroups {
    /// The account.
    pub name: String,
    /// All its groups, separated by commas, or `none`.
    pub groups: String,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Shares of an account in percent, by the names of the REST interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Share(pub BTreeMap<&'static str, u8>);

/// Parses shares.
fn share(text: &str) -> Result<Share, String> {
    const PARTS: [(&str, &str); 3] = [
        ("bytes", "bytes_percent"),
        ("streams", "streams_percent"),
        ("requests", "requests_percent"),
    ];
    let mut share = Share::default();
    if text == "default" {
        return Ok(share);
    }
    for part in text.split(',') {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let known = PARTS.iter().find(|(known, _)| *known == name);
        let (_, member) = known.ok_or_else(|| {
            format!("{name:?} is not a share: bytes, streams or requests, or `default`")
        })?;
        let percent = value.strip_suffix('%').unwrap_or(value).parse();
        let percent = percent.ok().filter(|percent| (1..=100).contains(percent));
        let percent =
            percent.ok_or_else(|| format!("{name}: {value:?} is not 1 to 100 percent"))?;
        if share.0.insert(member, percent).is_some() {
            return Err(format!("{name} is given twice"));
        }
    }
    Ok(share)
}

/// Flags of `account renew`.
#[derive(Debug, Args)]
pub(crate) struct AccountRenew {
    /// The account.
    pub name: String,
    /// Write the token to this new file, readable by its owner only, instead of printing it.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

/// Flags of `account revoke`.
#[derive(Debug, Args)]
pub(crate) struct AccountRevoke {
    /// The account.
    pub name: String,
    /// Remove it altogether, so that its name is free.
    #[arg(long)]
    pub forget: bool,
    /// The node.
    #[command(flatten)]
    pub node: NodeAddress,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages_by_name() {
        let parsed = share("bytes=40,requests=20%").unwrap();
        let expected = BTreeMap::from([("bytes_percent", 40), ("requests_percent", 20)]);
        assert_eq!(parsed.0, expected);
        assert_eq!(share("default"), Ok(Share::default()));
        for text in [
            "",
            "bytes",
            "bytes=0",
            "bytes=101",
            "bytes=1,bytes=2",
            "rows=3",
            "bytes=4 GiB",
        ] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
