//! Windows of calendars, on the odd days of time zones.

use serde_json::json;
use sluicegate::Micros;
use sluicegate_policy::Policy;

use super::is_fresh;

/// Zones, and instants around which something happens there, in s since the epoch. The days are past, so
/// every database of time zones of the last years knows them alike.
const DAYS: [(&str, &[u64]); 16] = [
    ("UTC", &[0, 1_709_164_799, 1_709_164_800, 1_735_689_599, 1_735_689_600, 4_102_444_799]),
    // Clocks skip an hour and turn back.
    ("Europe/Berlin", &[1_711_846_799, 1_711_846_800, 1_729_990_799, 1_729_994_400, 1_704_063_600]),
    ("europe/berlin", &[1_711_846_800]),
    ("America/New_York", &[1_710_053_999, 1_710_054_000, 1_730_613_600, 1_730_617_200]),
    // Midnight is skipped.
    ("America/Sao_Paulo", &[1_541_300_399, 1_541_300_400, 1_541_386_800, 1_518_919_200]),
    ("Africa/Cairo", &[1_682_632_799, 1_682_632_800, 1_698_353_999, 1_698_354_000]),
    ("Asia/Beirut", &[1_711_835_999, 1_711_836_000]),
    // Midnight comes twice.
    ("America/Havana", &[1_699_156_800, 1_699_160_400, 1_699_164_000, 1_710_046_800]),
    // The old date comes again after the new one has begun.
    ("America/St_Johns", &[1_289_097_000, 1_289_097_060, 1_289_100_600, 1_289_100_660]),
    // A day is skipped.
    ("Pacific/Apia", &[1_325_238_300, 1_325_239_200, 1_325_242_799, 1_325_242_800, 1_325_325_600]),
    ("Pacific/Kwajalein", &[745_804_799, 745_804_800, 745_934_400]),
    // Half an hour.
    ("Australia/Lord_Howe", &[1_712_415_599, 1_712_415_600, 1_728_142_199, 1_728_142_200]),
    ("Asia/Kathmandu", &[1_700_000_000]),
    ("Asia/Kolkata", &[0, 1_719_772_199, 1_719_772_200]),
    ("Pacific/Kiritimati", &[788_868_000, 789_040_800, 1_704_016_800]),
    ("America/Scoresbysund", &[1_711_846_800, 1_729_990_800]),
];

#[test]
fn windows_of_calendars_are_those_of_the_page_on_odd_days_too() {
    let mut entries = Vec::new();
    for (zone, days) in DAYS {
        for unit in ["day", "week", "month", "year"] {
            let text = format!(
                r#"{{"name":"p","rules":[{{"fixed_window":{{"limit":1,"calendar":"{unit}","time_zone":"{zone}"}}}}]}}"#
            );
            let policy = Policy::parse_one(&text).expect("it makes sense");
            for day in days {
                for now in [Micros::from_secs(*day), Micros::new(day * 1_000_000 + 1)] {
                    let windows = policy.rules().windows(now);
                    let window = windows.as_slice()[0].expect("it has a calendar");
                    entries.push(json!({
                        "unit": unit, "zone": zone, "now_us": now.get(),
                        "start_us": window.start.get(), "end_us": window.end.get(),
                    }));
                }
            }
        }
    }
    is_fresh("calendars", "Windows around instants: redis.md, Calendars.", &entries);
}
