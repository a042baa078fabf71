// The places of the console, for the rail, the bar of phones and the palette.
import { Activity, Bot, CalendarClock, CircleDollarSign, KeyRound, Laptop, ScrollText, Server, ShieldQuestion } from "lucide-react";

export const places = [
  { to: "/runs", name: "Runs", icon: Activity, key: "r" },
  { to: "/approvals", name: "Approvals", icon: ShieldQuestion, key: "a" },
  { to: "/definitions", name: "Agents", icon: Bot, key: "d" },
  { to: "/schedules", name: "Schedules", icon: CalendarClock, key: "s" },
  { to: "/workers", name: "Workers", icon: Server, key: "w" },
  { to: "/machines", name: "Machines", icon: Laptop, key: "m" },
  { to: "/usage", name: "Usage", icon: CircleDollarSign, key: "u" },
  { to: "/keys", name: "API keys", icon: KeyRound, key: "k" },
  { to: "/audit", name: "Audit", icon: ScrollText, key: "l" },
] as const;

/** How many places the bar of a phone has room for; the palette has the others. */
export const ON_PHONES = 4;
