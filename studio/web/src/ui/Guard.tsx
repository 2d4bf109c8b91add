// Keeps a fault in one part of the editor from taking the rest along: what was edited stays and can be saved.
import { Component, type ReactNode } from "react";

type Props = { children: ReactNode; part: string };

export class Guard extends Component<Props, { fault: string | null }> {
  override state = { fault: null as string | null };

  static getDerivedStateFromError(error: Error): { fault: string } {
    return { fault: error.message };
  }

  override render(): ReactNode {
    if (this.state.fault === null) return this.props.children;
    return (
      <div className="nothing" role="alert" data-testid="fault">
        <p>
          Something went wrong in {this.props.part}: {this.state.fault}
        </p>
        <button type="button" className="button small outlined" onClick={() => this.setState({ fault: null })}>
          Try again
        </button>
      </div>
    );
  }
}
