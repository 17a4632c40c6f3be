// lastword in Pi's own terminal program. Given by `-e`; spoken to and heard by two files that are named by LASTWORD_PI:
//   STREAM.jsonl       what happens here, a line an event, each appended at once: the record of this process
//   STREAM.sent.jsonl  what is wanted, a line a command, appended by the host; read on, never twice
// A line in the record is written before what it speaks of is done ("taken") or once Pi has told it (all others).
// Pi evaluates this file anew at /new, /resume, /fork and /reload: what must outlive that stands in one global.
import { closeSync, type FSWatcher, fstatSync, openSync, readSync, statSync, watch, writeSync } from "node:fs";

const VERSION = 1; // of these lines
const POLL_MS = 1000;
const ABSENT_MS = 30_000; // Pi idle for so long behind a text that it was given, and no run: it has not taken it
const RESULT_CHARS_MAX = 70_000;
const KEY = Symbol.for("lastword.pi");
const WATCHED = Symbol.for("lastword.pi.watched");

type Text = {
  id: string;
  text: string;
  sends: number; // calls of sendUserMessage, and how many of them Pi has told of
  heards: number;
  since: number;
  idle: boolean; // Pi was, when it was given
  runs: boolean; // a run began behind it
  mixed: boolean; // somebody else spoke meanwhile
  unwanted: boolean;
  tidied: boolean;
};

type Asked = { kind: string; question: string; options: string[]; values: unknown[]; none: unknown; timeout?: number };
type Dialog = { answer: (option: number) => void; dismiss: () => void };

class Mouth {
  pi: any;
  ctx: any = null; // of the session that Pi is in; null between two
  private out = -1;
  private sent = -1;
  private watcher: FSWatcher | null = null;
  private at = 0;
  private torn: Buffer = Buffer.alloc(0);
  private unwritten: Buffer = Buffer.alloc(0);
  private known = new Set<string>();
  private waiting: Text[] = []; // not given to Pi yet, in order
  private flying: Text | null = null; // given to an idle Pi, and not begun
  private queued: Text[] = []; // in Pi's own queue
  private theirs: string[] = []; // what others have there
  private settles = 0;
  private compacting = false;
  private abortNext = false;
  private dialogs = new Map<string, Dialog>(); // drawn for a person, and told: whoever is first answers
  private asked = 0;

  constructor(private stream: string) {
    this.open();
    this.hear();
    const poll = this.watcher ? POLL_MS : POLL_MS / 5; // where no watch is to be had
    setInterval(() => this.tick(), poll).unref();
  }

  // The record; anew where somebody deleted it.
  private open(): void {
    if (this.out >= 0 && fstatSync(this.out).nlink) return;
    if (this.out >= 0) closeSync(this.out);
    this.out = -1;
    this.out = openSync(`${this.stream}.jsonl`, "a", 0o600);
  }

  // The commands; from their start where that is another file by now: none is carried out twice.
  private hear(): void {
    const path = `${this.stream}.sent.jsonl`;
    try {
      const there = statSync(path);
      if (this.sent >= 0 && fstatSync(this.sent).ino === there.ino && there.size >= this.at) return;
      if (this.sent >= 0) closeSync(this.sent);
      this.sent = -1;
      this.watcher?.close();
      this.watcher = null;
      this.sent = openSync(path, "r");
      this.at = 0;
      this.torn = Buffer.alloc(0);
      this.watcher = watch(path, () => this.read());
      this.watcher.unref();
    } catch {
      // not there now, or no watch is to be had: the next tick looks
    }
  }

  // --- the record -----------------------------------------------------------------------------------------------

  say(line: object): void {
    const data = Buffer.from(JSON.stringify({ v: VERSION, t: Date.now(), ...line }) + "\n");
    this.unwritten = this.unwritten.length ? Buffer.concat([this.unwritten, data]) : data;
    this.flush();
  }

  private flush(): void {
    try {
      this.open();
      while (this.unwritten.length) this.unwritten = this.unwritten.subarray(writeSync(this.out, this.unwritten));
    } catch {
      // a full disk: with the next event, or the next tick
    }
  }

  // --- what is wanted -------------------------------------------------------------------------------------------

  read(): void {
    this.hear();
    if (this.sent < 0) return;
    const piece = Buffer.alloc(65536);
    for (;;) {
      let length = 0;
      try {
        length = readSync(this.sent, piece, 0, piece.length, this.at);
      } catch {
        return;
      }
      if (!length) break;
      this.at += length;
      this.torn = Buffer.concat([this.torn, piece.subarray(0, length)]);
    }
    for (let end = this.torn.indexOf(10); end >= 0; end = this.torn.indexOf(10)) {
      const line = this.torn.subarray(0, end).toString();
      this.torn = this.torn.subarray(end + 1);
      try {
        if (line) this.wanted(JSON.parse(line));
      } catch {
        // a torn line: the host was told that it did not go out
      }
    }
    this.pump();
  }

  private wanted(command: any): void {
    if (command.do === "say" && typeof command.id === "string" && typeof command.text === "string") {
      if (this.known.has(command.id)) return;
      this.known.add(command.id);
      const { id, text } = command;
      const none = { sends: 0, heards: 0, since: 0, idle: false, runs: false, mixed: false };
      this.waiting.push({ id, text, ...none, unwanted: false, tidied: false });
    } else if (command.do === "withdraw") {
      const at = this.waiting.findIndex((each) => each.id === command.id);
      if (at >= 0) {
        this.waiting.splice(at, 1);
        this.say({ ev: "withdrawn", id: command.id });
      }
      for (const each of this.queued) if (each.id === command.id) each.unwanted = true;
    } else if (command.do === "answer") {
      this.dialogs.get(command.dialog)?.answer(command.option);
    } else if (command.do === "interrupt") {
      if (command.settles < this.settles) return; // that run is over: the next one would be hit
      this.pump(); // what it means may be the text right before it
      if (!this.ctx) return;
      if (!this.ctx.isIdle()) this.abort();
      else if (this.flying) this.abortNext = true; // Pi prepares its run: an abort now would do nothing
    }
  }

  pump(): void {
    while (this.ctx && !this.flying && !this.compacting && this.waiting.length) {
      const next = this.waiting.shift()!;
      this.say({ ev: "taken", id: next.id });
      if (!this.ctx.model) {
        this.refuse(next, "no model is selected in Pi");
        continue;
      }
      this.flying = next;
      this.give(next);
    }
  }

  private give(text: Text): void {
    text.sends += 1;
    text.since = Date.now();
    text.idle = this.ctx.isIdle();
    this.pi.sendUserMessage(text.text, { deliverAs: "steer" });
  }

  private refuse(text: Text, reason: string): void {
    if (this.flying === text) {
      this.flying = null;
      this.abortNext = false;
    }
    this.say({ ev: "refused", id: text.id, reason });
  }

  private landed(text: Text): void {
    if (this.flying !== text) return;
    this.flying = null;
    if (this.abortNext) this.abort();
    this.abortNext = false;
    setImmediate(() => this.pump());
  }

  // --- what Pi tells --------------------------------------------------------------------------------------------

  heard(event: any, ctx: any): object | undefined {
    const text = this.flying;
    if (text && event.source === "extension" && event.text === text.text) {
      text.heards += 1;
      if (text.heards > 1) return { action: "handled" }; // given twice, since the first one seemed lost
      this.say({ ev: "input", id: text.id, source: event.source, streamingBehavior: event.streamingBehavior });
      if (event.streamingBehavior) {
        this.queued.push(text);
        setImmediate(() => this.landed(text));
      } else {
        this.keyed(text, ctx);
      }
      return undefined;
    }
    if (text) text.mixed = true;
    if (event.streamingBehavior) this.theirs.push(event.text);
    const { source, streamingBehavior } = event;
    this.say({ ev: "input", text: event.text, source, streamingBehavior });
    return undefined;
  }

  // Pi tells no extension that a prompt failed for want of a key.
  private keyed(text: Text, ctx: any): void {
    const registry = ctx.modelRegistry;
    const model = ctx.model;
    if (!model || registry.hasConfiguredAuth(model)) return;
    registry.getApiKeyForProvider(model.provider).then(
      (key: unknown) => {
        const idle = this.flying === text && !text.runs && this.ctx?.isIdle();
        if (!key && idle) this.refuse(text, `Pi has no key for its model (${model.provider})`);
      },
      () => undefined,
    );
  }

  beginning(): void {
    this.compacting = false;
    if (this.flying?.heards) this.flying.runs = true;
    if (this.abortNext) {
      this.abortNext = false;
      this.abort();
    }
  }

  // Whose user message this is: "" where it is none of ours.
  whose(said: string): string {
    const flying = this.flying;
    if (flying && flying.heards && !this.queued.includes(flying) && (said === flying.text || this.first(flying))) {
      this.landed(flying);
      return flying.id;
    }
    const at = this.queued.findIndex((each) => each.text === said);
    if (at >= 0) return this.queued.splice(at, 1)[0].id;
    const other = this.theirs.indexOf(said);
    if (other >= 0) this.theirs.splice(other, 1);
    return "";
  }

  // Another extension may have put other words into it: then it is known by its place.
  private first(flying: Text): boolean {
    return flying.idle && flying.runs && !flying.mixed;
  }

  compaction(begins: boolean): void {
    this.compacting = begins;
    if (!begins) setImmediate(() => this.pump());
  }

  abort(): void {
    const draft = this.ctx.ui.getEditorText();
    const ours = this.queued.filter((each) => !each.tidied);
    this.ctx.abort(); // Pi puts its queue into the editor: of that only what is not ours stays there
    for (const dialog of [...this.dialogs.values()]) dialog.dismiss(); // a run that waits for an answer does not end
    if (!ours.length) return;
    for (const each of ours) each.tidied = true;
    this.ctx.ui.setEditorText([...this.theirs, draft].filter((each: string) => each.trim()).join("\n\n"));
  }

  settled(event: any, ctx: any): void {
    this.settles += 1;
    this.abortNext = false;
    const stranded = ctx.hasPendingMessages(); // Pi would run them behind the next prompt
    if (stranded && this.queued.length) this.abort();
    const flying = this.flying;
    if (flying?.runs) this.refuse(flying, "its run ended before it began");
    this.say({ ev: "agent_settled", aborted: event.aborted });
    this.takeBack();
    setImmediate(() => this.pump());
  }

  // What Pi did not begin is given to it again, unless nobody wants it any more.
  takeBack(): void {
    const back = this.queued;
    if (!back.length) {
      this.theirs = [];
      return;
    }
    this.queued = [];
    this.tidy(back.filter((each) => !each.tidied));
    this.theirs = [];
    for (const each of back) {
      this.say({ ev: each.unwanted ? "withdrawn" : "returned", id: each.id });
      Object.assign(each, { sends: 0, heards: 0, runs: false, mixed: false, tidied: false });
    }
    this.waiting.unshift(...back.filter((each) => !each.unwanted));
  }

  // A person pressed Escape: our texts are none of the draft's.
  private tidy(texts: Text[]): void {
    if (!texts.length || !this.ctx) return;
    const before: string = this.ctx.ui.getEditorText();
    let rest = before;
    for (const { text } of texts) {
      const shown = text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ");
      const word = rest.includes(text) ? text : shown;
      const at = rest.indexOf(word);
      if (at < 0) continue;
      rest = rest.slice(0, at) + rest.slice(at + word.length).replace(/^\n\n/, "");
    }
    rest = rest.replace(/\n\n$/, "");
    if (rest !== before) this.ctx.ui.setEditorText(rest);
  }

  began(pi: any, event: any, ctx: any): void {
    this.pi = pi;
    this.ctx = ctx;
    this.compacting = false;
    this.watch(ctx.ui);
    const file = ctx.sessionManager.getSessionFile();
    this.say({ ev: "session_start", reason: event.reason, file, leaf: ctx.sessionManager.getLeafId() });
    if (event.reason !== "startup" && event.reason !== "reload") {
      if (this.flying) this.queued.unshift(this.flying);
      this.flying = null;
      for (const each of this.queued) each.tidied = true; // the editor is another one
      this.takeBack();
    }
    setImmediate(() => this.read());
  }

  ended(event: any): void {
    this.ctx = null;
    this.say({ ev: "session_shutdown", reason: event.reason });
  }

  // --- dialogs ------------------------------------------------------------------------------------------------

  // Draw it, tell it, and take the answer of whoever is first: a person in the pane, or the host.
  private ask(asked: Asked, draw: (signal: AbortSignal) => Promise<unknown>): Promise<unknown> {
    const { kind, question, options, values, none, timeout } = asked;
    const id = `${Date.now()}-${++this.asked}`;
    const drawn = new AbortController();
    return new Promise((resolve, reject) => {
      const end = (by: string, tell: () => void) => {
        if (!this.dialogs.delete(id)) return;
        this.say({ ev: "dialog_closed", id, by });
        drawn.abort();
        tell();
      };
      this.dialogs.set(id, {
        answer: (option) => {
          if (option >= 1 && option <= values.length) end("host", () => resolve(values[option - 1]));
        },
        dismiss: () => end("interrupt", () => resolve(none)),
      });
      this.say({ ev: "dialog", id, kind, msg: question, options, timeout });
      draw(drawn.signal).then(
        (value) => end("pane", () => resolve(value)),
        (error) => end("pane", () => reject(error)),
      );
    });
  }

  // Every extension asks through this object.
  watch(ui: any, kind = "question"): void {
    if (!ui || ui[WATCHED]) return;
    ui[WATCHED] = true;
    const { select, confirm, input, editor } = ui;
    const words = (...each: any[]) => each.filter((word) => typeof word === "string" && word).join("\n");
    const until = (opts: any, signal: AbortSignal) =>
      ({ ...opts, signal: opts?.signal ? AbortSignal.any([opts.signal, signal]) : signal });
    if (select)
      ui.select = (title: string, options: string[], opts?: any) => {
        const asked = { kind, question: title, timeout: opts?.timeout, none: undefined };
        const choices = { options: [...options, "Cancel"], values: [...options, undefined] };
        return this.ask({ ...asked, ...choices }, (signal) => closing(select(title, options, until(opts, signal)), kind, signal));
      };
    if (confirm)
      ui.confirm = (title: string, message: string, opts?: any) => {
        const asked = { kind, question: words(title, message), timeout: opts?.timeout, none: false };
        const choices = { options: ["Yes", "No"], values: [true, false] };
        return this.ask({ ...asked, ...choices }, (signal) => closing(confirm(title, message, until(opts, signal)), kind, signal));
      };
    if (input)
      ui.input = (title: string, placeholder?: string, opts?: any) => {
        const asked = { kind, question: title, timeout: opts?.timeout, none: undefined };
        const choices = { options: ["Cancel"], values: [undefined] }; // it wants words, and an answer is an option
        return this.ask({ ...asked, ...choices }, (signal) => closing(input(title, placeholder, until(opts, signal)), kind, signal));
      };
    if (editor)
      ui.editor = (title: string, prefill?: string) => {
        const kept = typeof prefill === "string" ? { options: ["Leave the text as it is"], values: [prefill] } : { options: [], values: [] };
        const choices = { options: [...kept.options, "Cancel"], values: [...kept.values, undefined] };
        return this.ask({ kind, question: title, none: undefined, ...choices }, (signal) => closing(editor(title, prefill), "trust", signal));
      };
  }

  private tick(): void {
    this.flush();
    this.read();
    const text = this.flying;
    if (!this.ctx?.isIdle()) return;
    this.compacting = false;
    if (text && !text.heards && Date.now() - text.since > POLL_MS) {
      this.give(text); // Pi refused it without a word: it was compacting
    } else if (text && !text.runs && Date.now() - text.since > ABSENT_MS) {
      this.refuse(text, "Pi did not begin it: it has no key for its model, or another extension took it");
    }
    this.pump();
  }
}

// What Pi draws before it is up, and its editor, no signal takes away: Escape does, as a person's would.
function closing(drawn: Promise<unknown>, kind: string, signal: AbortSignal): Promise<unknown> {
  let open = true;
  const over = () => {
    open = false;
  };
  drawn.then(over, over);
  if (kind === "trust") signal.addEventListener("abort", () => open && process.stdin.emit("data", Buffer.from("\x1b")));
  return drawn;
}

function textOf(content: any): string {
  if (!Array.isArray(content)) return typeof content === "string" ? content : "";
  return content.map((block: any) => (block.type === "text" ? block.text : "")).join("");
}

function messageOf(mouth: Mouth, message: any): object | undefined {
  if (message.role === "system") return undefined;
  const line: any = { ev: "message_end", role: message.role, at: message.timestamp };
  if (message.role !== "toolResult") line.msg = textOf(message.content);
  if (message.role === "user") line.id = mouth.whose(line.msg) || undefined;
  if (message.role === "assistant") Object.assign(line, { stop: message.stopReason, err: message.errorMessage });
  return line;
}

export default function (pi: any) {
  const world = globalThis as any;
  const stream = process.env.LASTWORD_PI;
  delete process.env.LASTWORD_PI; // what Pi starts is not to speak here
  if (!world[KEY] && stream) world[KEY] = new Mouth(stream);
  const mouth: Mouth | undefined = world[KEY];
  if (!mouth) return;

  pi.on("project_trust", (_event: any, ctx: any) => {
    mouth.watch(ctx.ui, "trust"); // what Pi then asks, if it has to, is told
    return { trusted: "undecided" };
  });
  pi.on("session_start", (event: any, ctx: any) => mouth.began(pi, event, ctx));
  pi.on("session_shutdown", (event: any) => mouth.ended(event));
  pi.on("input", (event: any, ctx: any) => mouth.heard(event, ctx));
  pi.on("before_agent_start", () => mouth.beginning());
  pi.on("agent_start", () => {
    mouth.beginning();
    mouth.say({ ev: "agent_start" });
  });
  pi.on("message_end", (event: any) => {
    const line = messageOf(mouth, event.message);
    if (line) mouth.say(line);
  });
  pi.on("tool_execution_start", (event: any) => {
    mouth.say({ ev: event.type, toolCallId: event.toolCallId, toolName: event.toolName, args: event.args });
  });
  pi.on("tool_execution_end", (event: any) => {
    const msg = textOf(event.result?.content).slice(0, RESULT_CHARS_MAX);
    mouth.say({ ev: event.type, toolCallId: event.toolCallId, toolName: event.toolName, isError: event.isError, msg });
  });
  for (const name of ["session_before_compact", "session_before_tree"]) pi.on(name, () => mouth.compaction(true));
  for (const name of ["session_compact", "session_compact_failed", "session_tree"])
    pi.on(name, () => {
      mouth.compaction(false);
      if (name === "session_compact") mouth.say({ ev: name });
    });
  pi.on("agent_settled", (event: any, ctx: any) => mouth.settled(event, ctx));
}
