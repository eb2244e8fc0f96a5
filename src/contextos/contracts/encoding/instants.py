"""Times as text: RFC 3339, read strictly and kept in one form.

A time names its zone. `2026-05-03T09:30:00+02:00` and `2026-05-03t07:30:00z` are read, and are kept as
`2026-05-03T07:30:00Z`. A text without zone, seconds or day is not a time: nobody knows which one is meant.
Source: RFC 3339, 5.6 (the form) and 5.7 (leap seconds, which are read as the second that follows).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

TIME_FORM: Final = "write it with its zone (RFC 3339), like `2026-05-04T09:31:30Z` or `2026-05-04T11:31:30+02:00`"
_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def utc_time(text: str) -> str | None:
    """Return a time in its one form, in UTC with `Z`; None if the text is not a time. A fraction stays unchanged.

    >>> utc_time("2026-05-03T09:30:00.5+02:00"), utc_time("2026-05-03T09:30:00")
    ('2026-05-03T07:30:00.5Z', None)
    """
    parsed = _parse_time(text)
    if parsed is None:
        return None
    moment, fraction = parsed
    return f"{moment.replace(tzinfo=None).isoformat()}{fraction and f'.{fraction}'}Z"


def unix_us(text: str) -> int | None:
    """Return a time as Unix microseconds; None if the text is not a time. Parts of a microsecond are cut off.

    >>> unix_us("1970-01-01T00:00:01.5Z"), unix_us("1970-01-01")
    (1500000, None)
    """
    parsed = _parse_time(text)
    if parsed is None:
        return None
    moment, fraction = parsed
    return (moment - _EPOCH) // _MICROSECOND + (int(fraction[:6].ljust(6, "0")) if fraction else 0)


def _parse_time(text: str) -> tuple[datetime, str] | None:
    """Return the second in UTC and the digits of its fraction; None if the text is not a time."""
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    day, minute, second, fraction, sign, hours, minutes = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{minute}:{'59' if second == '60' else second}+00:00")
        if sign:
            moment -= timedelta(hours=int(hours), minutes=int(minutes)) * (-1 if sign == "-" else 1)
        if second == "60":
            # Unix time has no leap second: it is the first one of the day that follows.
            return (moment + timedelta(seconds=1), fraction or "") if (moment.hour, moment.minute) == (23, 59) else None
    except (ValueError, OverflowError):
        return None
    return moment, fraction or ""
