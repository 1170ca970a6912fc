//! The time in which a chain of certificates is valid.

use jiff::Timestamp;
use tokio_rustls::rustls::pki_types::CertificateDer;
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::Decode;
use x509_cert::time::Time;

/// The time in which all certificates of a chain are valid, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    begin: i64,
    end: i64,
}

impl Validity {
    /// The time that all certificates of `chain` have in common. One that cannot be read does not count: TLS itself
    /// decides whether it is valid.
    pub(super) fn of(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let each = chain.iter().filter_map(|one| {
            let certificate = CertificateInner::<Raw>::from_der(one).ok()?;
            let validity = certificate.tbs_certificate().validity();
            let seconds = |time: Time| i64::try_from(time.to_unix_duration().as_secs()).ok();
            let (begin, end) = (seconds(validity.not_before)?, seconds(validity.not_after)?);
            Some(Self { begin, end })
        });
        each.reduce(|a, b| Self { begin: a.begin.max(b.begin), end: a.end.min(b.end) })
    }

    /// The time when the first certificate expires.
    pub(super) const fn end(self) -> i64 {
        self.end
    }

    /// The reason why clients refuse the chain `now`, in seconds since 1970, if they do.
    pub(super) fn problem(self, now: i64) -> Option<String> {
        let shown =
            |at| Timestamp::from_second(at).map_or_else(|_| format!("{at} s"), |at| at.to_string());
        if now > self.end {
            let at = shown(self.end);
            return Some(format!("a certificate expired at {at}, and clients refuse it: renew it"));
        }
        if now < self.begin {
            let at = shown(self.begin);
            return Some(format!(
                "a certificate is not valid before {at}, and clients refuse it until then: check the clock, or renew it"
            ));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chain_is_refused_before_and_after_its_time() {
        let validity = Validity { begin: 1_700_000_000, end: 1_700_086_400 };
        assert_eq!(
            validity.problem(1_699_999_999).as_deref(),
            Some(
                "a certificate is not valid before 2023-11-14T22:13:20Z, and clients refuse it until then: check the \
                 clock, or renew it"
            )
        );
        for now in [1_700_000_000, 1_700_086_400] {
            assert_eq!(validity.problem(now), None);
        }
        assert_eq!(
            validity.problem(1_700_086_401).as_deref(),
            Some("a certificate expired at 2023-11-15T22:13:20Z, and clients refuse it: renew it")
        );
    }
}
