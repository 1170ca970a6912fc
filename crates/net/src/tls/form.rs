//! The forms of certificates and keys other than PEM, and the commands that convert them.
//!
//! Labels of PEM are looked for first, anywhere in the file: of a certificate request, of PKCS#7, of a public key, or
//! of a private key without a certificate. A file without such a label is recognised by its first elements of DER:
//!
//! | begins with | is |
//! |---|---|
//! | `SEQUENCE { INTEGER 3` | PKCS#12 |
//! | `SEQUENCE { INTEGER` | a private key |
//! | `SEQUENCE { OBJECT IDENTIFIER` | PKCS#7 |
//! | `SEQUENCE { SEQUENCE { INTEGER 0, SEQUENCE` | a certificate request |
//! | `SEQUENCE { SEQUENCE { [0]` or another `INTEGER` | a certificate |

/// The content that a file is to have, in PEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A certificate, and those that lead to its authority.
    Certificate,
    /// Certificates of authorities.
    Authorities,
    /// A private key.
    Key,
}

/// The content that a file has instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Empty,
    Key,
    Pkcs12,
    Pkcs7,
    DerCertificate,
    DerKey,
    Request,
    PublicKey,
}

const INTEGER: u8 = 0x02;
const OBJECT_IDENTIFIER: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const VERSION_OF_CERTIFICATE: u8 = 0xa0;

/// The problem of a file with `content` that is not the expected PEM: its form, and how to convert it. The problem
/// contains no part of the content. `None`: the form is unknown.
#[must_use]
pub fn problem(content: &[u8], expected: Expected) -> Option<String> {
    let form = Form::of(content).filter(|form| (*form, expected) != (Form::Key, Expected::Key))?;
    let wanted = match expected {
        Expected::Certificate | Expected::Authorities => "certificates in PEM",
        Expected::Key => "a private key in PEM",
    };
    let advice = form.advice(expected).map(|advice| format!("; {advice}")).unwrap_or_default();
    Some(format!("is {}, expected {wanted}{advice}", form.name()))
}

/// The problem of a file with `content` whose certificate `number`, counted from 1, cannot be read.
#[must_use]
pub fn damaged(content: &[u8], expected: Expected, number: usize) -> String {
    problem(content, expected).unwrap_or_else(|| {
        format!("certificate {number} of the file is damaged: write the file again, such as by copying it")
    })
}

impl Form {
    fn of(content: &[u8]) -> Option<Self> {
        const PEM_LABELS: [(&str, Form); 5] = [
            ("-----BEGIN CERTIFICATE REQUEST-----", Form::Request),
            ("-----BEGIN NEW CERTIFICATE REQUEST-----", Form::Request),
            ("-----BEGIN PKCS7-----", Form::Pkcs7),
            ("-----BEGIN PUBLIC KEY-----", Form::PublicKey),
            ("-----BEGIN RSA PUBLIC KEY-----", Form::PublicKey),
        ];
        if content.iter().all(u8::is_ascii_whitespace) {
            return Some(Self::Empty);
        }
        let has = |text: &str| content.windows(text.len()).any(|part| part == text.as_bytes());
        match PEM_LABELS.iter().find(|(text, _)| has(text)) {
            Some((_, form)) => Some(*form),
            // A certificate may have its key behind it.
            None if has("PRIVATE KEY-----") && !has("BEGIN CERTIFICATE-----") => Some(Self::Key),
            None => Self::of_der(content),
        }
    }

    fn of_der(content: &[u8]) -> Option<Self> {
        let within = sequence(content)?;
        match element(within)? {
            (INTEGER, [3, ..]) => Some(Self::Pkcs12),
            (INTEGER, _) => Some(Self::DerKey),
            (OBJECT_IDENTIFIER, _) => Some(Self::Pkcs7),
            (SEQUENCE, within) => match element(within)? {
                (INTEGER, [0, SEQUENCE, ..]) => Some(Self::Request),
                (INTEGER | VERSION_OF_CERTIFICATE, _) => Some(Self::DerCertificate),
                _ => None,
            },
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Key => "a private key",
            Self::Pkcs12 => "PKCS#12",
            Self::Pkcs7 => "PKCS#7",
            Self::DerCertificate => "a certificate in DER",
            Self::DerKey => "a private key in DER",
            Self::Request => "a certificate request",
            Self::PublicKey => "a public key",
        }
    }

    /// The command that makes the expected file, if this form has the content for it.
    const fn advice(self, expected: Expected) -> Option<&'static str> {
        Some(match (self, expected) {
            (Self::Pkcs12, Expected::Certificate) => {
                "convert it with `openssl pkcs12 -in FILE -nokeys -out CERT.pem`"
            }
            (Self::Pkcs12, Expected::Authorities) => {
                "convert it with `openssl pkcs12 -in FILE -cacerts -nokeys -out CA.pem`"
            }
            (Self::Pkcs12, Expected::Key) => {
                "convert it with `openssl pkcs12 -in FILE -nocerts -nodes -out KEY.pem`"
            }
            (Self::Pkcs7, Expected::Certificate | Expected::Authorities) => {
                "convert it with `openssl pkcs7 -in FILE -print_certs -out CERT.pem` (`-inform der` if it is binary)"
            }
            (Self::DerCertificate, Expected::Certificate | Expected::Authorities) => {
                "convert it with `openssl x509 -inform der -in FILE -out CERT.pem`"
            }
            (Self::DerKey, Expected::Key) => {
                "convert it with `openssl pkey -inform der -in FILE -out KEY.pem`"
            }
            (Self::Request, Expected::Certificate) => {
                "have an authority sign it, such as by `openssl x509 -req -in FILE -CA CA.pem -CAkey CA.key \
                 -copy_extensions copy -out CERT.pem`"
            }
            _ => return None,
        })
    }
}

/// The content of a `SEQUENCE`, followed by the rest of `der`.
fn sequence(der: &[u8]) -> Option<&[u8]> {
    element(der).filter(|(tag, _)| *tag == SEQUENCE).map(|(_, content)| content)
}

/// The tag and the content of the first element of `der`; the content is followed by the rest of `der`.
fn element(der: &[u8]) -> Option<(u8, &[u8])> {
    let [tag, length, rest @ ..] = der else { return None };
    let more = if *length > 0x80 { usize::from(length & 0x7f) } else { 0 };
    Some((*tag, rest.get(more..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_another_form_is_named_with_the_command_that_converts_it() {
        for (content, expected, told) in [
            (
                &b"\x30\x82\x0a\x29\x02\x01\x03\x30"[..],
                Expected::Certificate,
                "is PKCS#12, expected certificates in PEM; convert it with `openssl pkcs12 -in FILE -nokeys -out CERT.pem`",
            ),
            // Its length is indefinite.
            (
                b"\x30\x80\x02\x01\x03\x30",
                Expected::Key,
                "is PKCS#12, expected a private key in PEM; convert it with `openssl pkcs12 -in FILE -nocerts -nodes \
                 -out KEY.pem`",
            ),
            (
                b"\x30\x82\x01\x80\x30\x82\x01\x26\xa0\x03\x02\x01\x02",
                Expected::Authorities,
                "is a certificate in DER, expected certificates in PEM; convert it with `openssl x509 -inform der -in FILE \
                 -out CERT.pem`",
            ),
            (
                b"\x30\x77\x02\x01\x01\x04\x20",
                Expected::Key,
                "is a private key in DER, expected a private key in PEM; convert it with `openssl pkey -inform der -in \
                 FILE -out KEY.pem`",
            ),
            (
                b"\x30\x77\x02\x01\x01\x04\x20",
                Expected::Certificate,
                "is a private key in DER, expected certificates in PEM",
            ),
            (
                b"\x30\x82\x02\x57\x30\x82\x01\x3f\x02\x01\x00\x30\x12",
                Expected::Certificate,
                "is a certificate request, expected certificates in PEM; have an authority sign it, such as by `openssl \
                 x509 -req -in FILE -CA CA.pem -CAkey CA.key -copy_extensions copy -out CERT.pem`",
            ),
            (b" \n", Expected::Certificate, "is empty, expected certificates in PEM"),
            (
                b"-----BEGIN EC PRIVATE KEY-----\n",
                Expected::Authorities,
                "is a private key, expected certificates in PEM",
            ),
            (
                b"-----BEGIN PUBLIC KEY-----\n",
                Expected::Key,
                "is a public key, expected a private key in PEM",
            ),
        ] {
            assert_eq!(problem(content, expected).as_deref(), Some(told));
        }
    }

    #[test]
    fn other_content_is_in_no_form_that_is_known() {
        for content in [
            &b"-----BEGIN PRIVATE KEY-----"[..],
            b"0",
            b"00000",
            b"\x30\x84\x01",
            b"hello",
            b"\x30\x03\x04\x01\x00",
        ] {
            assert_eq!(problem(content, Expected::Key), None, "{content:?}");
        }
    }
}
