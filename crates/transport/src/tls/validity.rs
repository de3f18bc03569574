//! Reads the end of a certificate's validity (RFC 5280, 4.1.2.5) from its DER. Nothing else is checked: its consumer
//! has accepted the certificate.

use chappe_identity::der::value;

/// Tags (X.690, 8.1.2).
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// The end year of a certificate without expiry.
const FOREVER_YEAR: i64 = 9_999;

/// Seconds from 1970 to the end of a certificate; `None` if it has no end or is malformed.
pub(super) fn end_of(certificate: &[u8]) -> Option<i64> {
    let (_, certificate, _) = value(certificate).filter(|it| it.0 == SEQUENCE)?;
    let (_, mut rest, _) = value(certificate).filter(|it| it.0 == SEQUENCE)?;
    if rest.first() == Some(&VERSION) {
        (_, _, rest) = value(rest)?;
    }
    // Serial number, algorithm, issuer.
    for _ in 0..3 {
        (_, _, rest) = value(rest)?;
    }
    let (_, validity, _) = value(rest).filter(|it| it.0 == SEQUENCE)?;
    let (_, _, end) = value(validity)?;
    let (tag, text, _) = value(end)?;
    time(tag, text)
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time(tag: u8, text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<i64>().ok();
    let (year, rest) = match (tag, text.len()) {
        (UTC_TIME, 12) => {
            let year = number(0..2)?;
            (
                if year < 50 {
                    2_000 + year
                } else {
                    1_900 + year
                },
                2,
            )
        }
        (GENERALIZED_TIME, 14) => (number(0..4)?, 4),
        _ => return None,
    };
    if year >= FOREVER_YEAR {
        return None;
    }
    let part = |index: usize| number(rest + 2 * index..rest + 2 * index + 2);
    let (month, day) = (part(0)?, part(1)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let seconds = part(2)? * 3_600 + part(3)? * 60 + part(4)?;
    Some(days(year, month, day) * 86_400 + seconds)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar. Years start in March, so that the leap day is the last
/// one.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    // 719,468 days from 0000-03-01 to 1970-01-01.
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::super::certificate::{FOREVER, make};
    use super::*;

    fn end(until: &str) -> Option<i64> {
        let text = make("a", "urn:a", &[], until).unwrap();
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        end_of(&chain.unwrap()[0])
    }

    #[test]
    fn the_end_is_optional() {
        assert_eq!(end(FOREVER), None);
        assert_eq!(end("20200102000000Z"), Some(1_577_923_200));
        assert_eq!(end("20240229235959Z"), Some(1_709_251_199));
        assert_eq!(end("21000301000001Z"), Some(4_107_542_401));
        assert_eq!(time(UTC_TIME, b"700101000001Z"), Some(1));
        assert_eq!(time(UTC_TIME, b"491231235959Z"), Some(2_524_607_999));
        for wrong in [
            &b""[..],
            b"Z",
            b"7001010000Z",
            b"709901000000Z",
            b"70010100000xZ",
        ] {
            assert_eq!(time(UTC_TIME, wrong), None);
        }
    }

    #[test]
    fn truncated_and_changed_certificates_do_not_panic() {
        let text = make("a", "urn:a", &[], FOREVER).unwrap();
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
        let certificate = chain.unwrap()[0].to_vec();
        for at in 0..certificate.len() {
            let _ = end_of(&certificate[..at]);
            for change in [0x01, 0x80, 0xff] {
                let mut changed = certificate.clone();
                changed[at] ^= change;
                let _ = end_of(&changed);
            }
        }
    }
}
