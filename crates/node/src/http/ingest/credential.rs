//! The credentials of agents: `Authorization: Token TOKEN` (InfluxDB 2), `Token NAME:TOKEN` and `u` and `p` of the query
//! (InfluxDB 1), and HTTP's basic authentication. The name is that of an account and the password its token.

use axum::extract::Query;
use axum::http::Uri;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chappe_identity::Token;
use serde::Deserialize;

/// A credential: the token, and the name of its account if it has one.
#[derive(Debug)]
pub(in crate::http) struct Credential {
    pub(in crate::http) name: Option<String>,
    pub(in crate::http) token: Token,
}

#[derive(Deserialize)]
struct InQuery {
    u: Option<String>,
    p: Option<String>,
}

impl Credential {
    /// The credential of an `Authorization` field that is none of this node's own scheme.
    pub(in crate::http) fn of_field(field: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(field).ok()?;
        let (scheme, rest) = text.split_once(' ')?;
        let rest = rest.trim();
        match scheme.to_ascii_lowercase().as_str() {
            "token" => match rest.rsplit_once(':') {
                Some((name, token)) => Self::new(name, token),
                None => Self::new("", rest),
            },
            "basic" => {
                let pair = String::from_utf8(STANDARD.decode(rest).ok()?).ok()?;
                let (name, token) = pair.split_once(':')?;
                Self::new(name, token)
            }
            _ => None,
        }
    }

    /// The credential of a query; the inner `None` if it is no token.
    pub(in crate::http) fn of_query(uri: &Uri) -> Option<Option<Self>> {
        let Query(InQuery { u, p }) = Query::try_from_uri(uri).ok()?;
        let password = p?;
        Some(Self::new(&u.unwrap_or_default(), &password))
    }

    fn new(name: &str, token: &str) -> Option<Self> {
        Some(Self {
            name: (!name.is_empty()).then(|| name.to_owned()),
            token: token.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_has_the_same_token() {
        let token = Token::from_seed([7; 32]).reveal();
        let basic = STANDARD.encode(format!("logger:{token}"));
        for (field, name) in [
            (format!("Token {token}"), None),
            (format!("token logger:{token}"), Some("logger")),
            (format!("Basic {basic}"), Some("logger")),
        ] {
            let found = Credential::of_field(field.as_bytes()).unwrap();
            assert_eq!(
                (found.name.as_deref(), found.token.reveal()),
                (name, token.clone())
            );
        }
        let uri = format!("/write?db=a&u=logger&p={token}").parse().unwrap();
        let found = Credential::of_query(&uri).unwrap().unwrap();
        assert_eq!(
            (found.name.as_deref(), found.token.reveal()),
            (Some("logger"), token)
        );
        assert!(Credential::of_query(&"/write?db=a".parse().unwrap()).is_none());
        let wrong = Credential::of_query(&"/write?p=secret".parse().unwrap());
        assert!(wrong.unwrap().is_none());
        for field in ["Token secret", "Basic ?", "Digest x", "Token"] {
            assert!(Credential::of_field(field.as_bytes()).is_none(), "{field}");
        }
    }
}
