//! The Date field (RFC 9110 §6.6.1), formatted once a second.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

/// An IMF-fixdate, such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub type Date = [u8; 29];

/// Caches the date of the last requested second.
#[derive(Debug)]
pub struct DateCache {
    second: u64,
    text: Date,
}

impl Default for DateCache {
    fn default() -> Self {
        let mut cache = DateCache { second: 0, text: [0; size_of::<Date>()] };
        cache.format(0);
        cache
    }
}

impl DateCache {
    /// The IMF-fixdate of a second since 1970.
    pub fn at(&mut self, second: u64) -> &Date {
        if second != self.second {
            self.format(second);
        }
        &self.text
    }

    fn format(&mut self, second: u64) {
        // httpdate panics after the year 9999.
        let second = second.min(253_402_300_799);
        let date = httpdate::HttpDate::from(UNIX_EPOCH + Duration::from_secs(second));
        // Cannot fail: an IMF-fixdate has 29 bytes.
        let _ = write!(&mut self.text[..], "{date}");
        self.second = second;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_an_imf_fixdate_of_its_second() {
        let mut cache = DateCache::default();
        assert_eq!(cache.at(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(cache.at(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(cache.at(784_111_777), b"Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(cache.at(784_111_778), b"Sun, 06 Nov 1994 08:49:38 GMT");
        assert_eq!(cache.at(u64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }
}
