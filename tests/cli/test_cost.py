"""`hybrisfs cost` and `cloud price`: what they print."""

from __future__ import annotations

import json
import time

from hybrisfs.api.status import Archive
from hybrisfs.dispersal.traffic import Counters
from hybrisfs.home import Home
from tests.cli.conftest import Run
from tests.daemon.fake import FakeVolume


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_nobody_knows_the_price(photos: FakeVolume, run: Run) -> None:
    said = lines(run("cost").stdout)
    assert said[0] == "photos None of its clouds has a known price."
    assert "amber 3.0 MB - - - - unknown" in said
    assert "hybrisfs cloud price CLOUD --storage 0.02 sets another one" in said[-1]


def test_a_month_at_list_prices(photos: FakeVolume, run: Run) -> None:
    photos.clouds.url = "s3://bucket/folder"
    photos.clouds.counters = Counters(put=20_000, get=50_000, list=2000, down=10**9, up=2 * 10**9)
    photos.archive = Archive("30d", "4+1", 9_000_000, 8_000_000, 10_000_000, 6_000_000, {"amber": 25}, 0.5)
    said = lines(run("cost", "photos").stdout)
    assert said[0] == "photos about $0.22 a month"
    assert time.strftime("%B %Y") in said[1]
    assert said[2:4] == [
        "CLOUD STORED ARCHIVED STORAGE REQUESTS EGRESS A MONTH PRICES",
        "amber 3.0 MB 25 bytes under $0.01 $0.13 $0.09 $0.22 Amazon S3",
    ]
    assert f"amber {time.strftime('%Y-%m')} 2.0 GB 1.0 GB 20,000 50,000 2,000 0" in said
    archive = "6.0 MB less than before, which saves about $0.50 a month"
    [shown] = [line for line in said if "archive:" in line]
    assert shown.endswith(archive)
    assert shown in lines(run("status").stdout), "both say the same"
    assert any(line.startswith("Left out are free allowances") for line in said)
    facts = json.loads(run("cost", "--json").stdout)
    assert facts["clouds"][0]["bill"]["egress"] == 0.09
    assert facts["archive"]["clouds"] == {"amber": 25}


def test_a_price_of_ones_own(photos: FakeVolume, run: Run, home: Home) -> None:
    assert run("cloud", "price", "amber").stdout == "amber: its price is unknown, and counts as nothing.\n"
    said = run("cloud", "price", "amber", "--storage", "1000", "--minimum-days", "30").stdout
    assert f"amber, USD, from {home.prices}:" in said
    assert "storage  1000  a GB and month" in said
    assert "charged for 30 days at least" in said
    assert "about $3.00 a month" in run("cost").stdout
    assert "your own" in run("cost").stdout
    assert run("cloud", "price", "amber", "--forget", "--put", "1").exit_code == 2
    assert "unknown" in run("cloud", "price", "amber", "--forget").stdout
    assert "There are: amber" in run("cloud", "price", "ambre", "--put", "1").stderr
    for wrong in ("nan", "-1", "1e7", "much"):
        assert run("cloud", "price", "amber", "--storage", wrong).exit_code == 2


def test_a_damaged_file_of_prices_is_named(photos: FakeVolume, run: Run, home: Home) -> None:
    home.prices.write_text("nonsense")
    assert f"The prices in {home.prices} do not count" in run("cost").stdout
    refused = run("cloud", "price", "amber", "--put", "1")
    assert refused.exit_code == 1 and "Mend the file, or remove it." in refused.stderr
