use super::*;

fn settings(dir: &Path) -> LogFile {
    LogFile {
        filename: dir.join("logs/tidegate.log"),
        max_size: 1,
        max_days: 0,
        max_backups: 0,
    }
}

fn at(day: u64) -> SystemTime {
    UNIX_EPOCH + DAY * u32::try_from(day).expect("small")
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir.join("logs")).expect("a directory");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_time_is_written_as_pd_writes_it() {
    let time = |seconds: u64, millis: u64| {
        stamp(UNIX_EPOCH + Duration::from_millis(seconds * 1_000 + millis))
    };
    assert_eq!(time(0, 0), "1970-01-01T00-00-00.000");
    assert_eq!(time(951_782_399, 7), "2000-02-28T23-59-59.007");
    assert_eq!(time(951_782_400, 0), "2000-02-29T00-00-00.000");
    assert_eq!(time(1_787_273_878, 123), "2026-08-21T00-57-58.123");
    assert_eq!(time(4_107_542_400, 0), "2100-03-01T00-00-00.000");
    assert!(is_stamp(&time(4_107_542_400, 0)));
    assert!(!is_stamp("2100-03-01") && !is_stamp("2100-03-01T00-00-00.00x"));
}

#[test]
fn a_full_file_is_begun_anew_and_no_line_is_lost() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut file = RotatingFile::open(settings(dir.path())).expect("opened");
    let line = vec![b'x'; 400_000];
    for day in 1..=5 {
        assert_eq!(file.write_at(&line, at(day)).expect("written"), line.len());
    }
    assert_eq!(
        names(dir.path()),
        [
            "tidegate-1970-01-04T00-00-00.000.log",
            "tidegate-1970-01-06T00-00-00.000.log",
            "tidegate.log"
        ]
    );
    let size = |name: &str| {
        fs::metadata(dir.path().join("logs").join(name))
            .expect("a file")
            .len()
    };
    assert_eq!(size("tidegate-1970-01-04T00-00-00.000.log"), 800_000);
    assert_eq!(size("tidegate.log"), 400_000);
    // What is there is gone on with.
    let again = RotatingFile::open(settings(dir.path())).expect("opened");
    assert_eq!(again.size, 400_000);
}

#[test]
fn old_files_are_kept_up_to_the_number_and_the_age() {
    let dir = tempfile::tempdir().expect("a directory");
    let of = |max_days, max_backups| LogFile {
        max_days,
        max_backups,
        ..settings(dir.path())
    };
    let line = vec![b'x'; 800_000];
    let mut file = RotatingFile::open(of(0, 2)).expect("opened");
    fs::write(dir.path().join("logs/tidegate-other.log"), "not ours").expect("written");
    (1..=6).for_each(|day| assert!(file.write_at(&line, at(day)).is_ok()));
    let kept = names(dir.path());
    assert_eq!(
        kept,
        [
            "tidegate-1970-01-06T00-00-00.000.log",
            "tidegate-1970-01-07T00-00-00.000.log",
            "tidegate-other.log",
            "tidegate.log"
        ]
    );
    let mut file = RotatingFile::open(of(3, 0)).expect("opened");
    assert!(file.write_at(&line, at(9)).is_ok());
    let kept = names(dir.path());
    assert_eq!(
        kept,
        [
            "tidegate-1970-01-07T00-00-00.000.log",
            "tidegate-1970-01-10T00-00-00.000.log",
            "tidegate-other.log",
            "tidegate.log"
        ]
    );
}

#[test]
fn a_file_that_was_moved_away_is_opened_again_by_its_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut file = RotatingFile::open(settings(dir.path())).expect("opened");
    file.write_all(b"one").expect("written");
    let name = dir.path().join("logs/tidegate.log");
    fs::rename(&name, dir.path().join("logs/moved")).expect("moved");
    file.reopen().expect("opened");
    file.write_all(b"two").expect("written");
    assert_eq!(fs::read(&name).expect("read"), b"two");
}

#[test]
fn a_file_whose_directory_was_removed_is_begun_anew() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut file = RotatingFile::open(settings(dir.path())).expect("opened");
    let begun = file.looked;
    fs::remove_dir_all(dir.path().join("logs")).expect("removed");
    file.look(begun.saturating_add(LOOK - Duration::from_millis(1)));
    assert!(!dir.path().join("logs").exists(), "not looked for yet");
    file.look(begun.saturating_add(LOOK));
    assert_eq!(file.write_at(b"a line", at(1)).expect("written"), 6);
    assert_eq!(
        fs::read_to_string(dir.path().join("logs/tidegate.log")).expect("text"),
        "a line"
    );
    assert_eq!(names(dir.path()), ["tidegate.log"]);
}
