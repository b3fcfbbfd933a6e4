// How the connection is: a word at the top, and a line of its own as soon as what is shown may be old.

import { byId, say } from "./dom";
import { clock } from "./format";
import type { Link } from "./live";

const WORDS: Record<Link, string> = { connecting: "connecting", live: "live", away: "reconnecting", ended: "session ended" };

export class Connection {
  /** When the server was last heard of, in seconds; 0 if never. */
  private heard = 0;

  tell(link: Link): void {
    const pill = byId("link");
    pill.dataset.state = link;
    say(pill, WORDS[link]);
    document.body.dataset.link = link;
    if (link === "live") this.heard = 0;
    else this.heard ||= Date.now() / 1000;
    const notice = byId("notice");
    notice.dataset.state = link;
    notice.classList.toggle("unseen", link === "live" || link === "connecting");
    say(notice, noticeOf(link, clock(this.heard)));
  }
}

export function noticeOf(link: Link, since: string): string {
  const old = `What is shown is from ${since}.`;
  if (link === "away") return `No connection to windlass up. ${old} Trying again.`;
  if (link === "ended") return `windlass up has restarted. ${old} Open its new link, or the one that windlass page prints.`;
  return "";
}
