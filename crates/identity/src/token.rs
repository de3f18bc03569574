//! Bearer tokens: 32 random bytes, stored by the server only as their hash.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::{Error, hex_decode_32, hex_encode};

/// A bearer secret. Written as 43 characters of base64url; `Debug` withholds it.
///
/// ```
/// use chappe_identity::Token;
/// let token = Token::from_seed([9; 32]);
/// let stored = token.hash();
/// let shown: Token = token.reveal().parse()?;
/// assert!(stored.accepts(&shown));
/// assert!(!stored.accepts(&Token::from_seed([8; 32])));
/// assert_eq!(format!("{token:?}"), "Token(withheld)");
/// # Ok::<(), chappe_identity::Error>(())
/// ```
#[derive(Clone)]
pub struct Token([u8; 32]);

impl Token {
    /// The token of this secret, which must come from a cryptographic source of randomness.
    #[must_use]
    pub const fn from_seed(seed: [u8; 32]) -> Self {
        Self(seed)
    }

    /// The text for its holder: shown once.
    #[must_use]
    pub fn reveal(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// The storable form: SHA-256, sufficient for a secret of 256 random bits.
    #[must_use]
    pub fn hash(&self) -> TokenHash {
        let mut hash = [0; 32];
        hash.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, &self.0).as_ref());
        TokenHash(hash)
    }
}

impl FromStr for Token {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        let bytes = (text.len() == 43).then(|| URL_SAFE_NO_PAD.decode(text));
        let bytes = bytes.and_then(Result::ok).ok_or(Error::Token)?;
        bytes.try_into().map(Self).map_err(|_| Error::Token)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(withheld)")
    }
}

/// The hash of a token. Written as 64 hexadecimal digits.
///
/// It cannot be compared with `==`: [`TokenHash::accepts`] takes the same time for every token.
#[derive(Clone)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Whether this is the hash of `token`, in constant time.
    #[must_use]
    pub fn accepts(&self, token: &Token) -> bool {
        self.is_same(&token.hash())
    }

    /// Whether both are the hash of one token, in constant time.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let difference = self.0.iter().zip(other.0);
        // No early end: every byte is looked at.
        difference.fold(0, |sum, (left, right)| sum | (left ^ right)) == 0
    }
}

/// The token in the value of an `Authorization` field (RFC 6750, section 2.1); `None` for another scheme or
/// a malformed token.
#[must_use]
pub fn bearer(field: &[u8]) -> Option<Token> {
    let text = std::str::from_utf8(field).ok()?;
    let (scheme, token) = text.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer");
    is_bearer.then(|| token.trim().parse().ok()).flatten()
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex_encode(&self.0))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenHash(withheld)")
    }
}

impl FromStr for TokenHash {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        hex_decode_32(text)
            .map(Self)
            .ok_or(Error::Hex("a token's hash"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_form_survives_and_wrong_texts_are_refused() {
        let token = Token::from_seed([3; 32]);
        let stored: TokenHash = token.hash().to_string().parse().unwrap();
        assert!(stored.accepts(&token));
        let mut other = [3; 32];
        other[31] ^= 1;
        assert!(!stored.accepts(&Token::from_seed(other)));
        for text in ["", "short", &"=".repeat(43), &"A".repeat(44)] {
            assert_eq!(text.parse::<Token>().unwrap_err(), Error::Token);
        }
        assert!("zz".repeat(32).parse::<TokenHash>().is_err());
    }

    #[test]
    fn only_a_bearer_token_is_a_credential() {
        let token = Token::from_seed([3; 32]);
        let text = token.reveal();
        for field in [format!("Bearer {text}"), format!("bearer  {text} ")] {
            let read = bearer(field.as_bytes()).unwrap();
            assert!(token.hash().accepts(&read), "{field}");
        }
        for field in [
            text.clone(),
            format!("Basic {text}"),
            "Bearer ".into(),
            "Bearer".into(),
        ] {
            assert!(bearer(field.as_bytes()).is_none(), "{field}");
        }
        assert!(bearer(b"Bearer \xff").is_none());
    }
}
